"""What stands for integers and conditions that follow from data, where another number than zero is as likely and sane.

Places of sorted values are an order, so that what is put in that order keeps its parts; the places of largest values
go through all there are, as the classes of a healthy job's answers do; as many conditions hold as there are places
where they are counted, as where data decides a shape (`SimulatedMemory.bound`); and no number is NaN or infinite.
"""

import math
from typing import Any

import torch

from vramtui.dryrun.fake.accounting.storages import StorageBook

_aten: Any = torch.ops.aten
_ORDERS = {_aten.sort, _aten.argsort, _aten.topk}
_LARGEST = {_aten.argmax, _aten.argmin, _aten.max, _aten.min}
_WITH_VALUES = {_aten.sort, _aten.topk, _aten.max, _aten.min}  # places are the second that they give
_DRAWS = {_aten.multinomial}
_COUNTS = {_aten.sum, _aten.count_nonzero}
# What they give has its numbers from what they are given first, in other places.
_MOVES = {
    _aten.index, _aten.index_select, _aten.gather, _aten._to_copy, _aten.clone, _aten.masked_select, _aten.repeat,
    _aten.flip, _aten.roll, _aten.stack, _aten.cat, _aten._unsafe_view, _aten.masked_fill, _aten.unique_consecutive,
}  # fmt: skip
_NEVER = {_aten.isnan, _aten.isinf, _aten.isposinf, _aten.isneginf}
_COMPARISONS = {_aten.eq: True, _aten.ne: False}
OperatorCall = tuple[Any, tuple[Any, ...], dict[str, Any]]


def counts(func: Any) -> bool:
    """Whether an operator counts conditions."""
    return func.overloadpacket in _COUNTS


def sound(call: OperatorCall) -> bool | None:
    """What a condition is in a healthy job wherever it is asked: whether a number is NaN or infinite, in every way that
    PyTorch asks it (`isfinite` compares with itself and with infinity); None for any other.
    """
    func, args, _kwargs = call
    packet = func.overloadpacket
    if packet in _NEVER:
        return False
    if packet in _COMPARISONS and len(args) > 1:
        same = args[0] is args[1]
        infinite = isinstance(args[1], float) and math.isinf(args[1])
        if same or infinite:
            return _COMPARISONS[packet] is same
    return None


def places_of(call: OperatorCall, out: Any, tensor: torch.Tensor, *, computed: bool) -> torch.Tensor | None:
    """The guess for the places that an operator gives; None where it gives none.

    Args:
        call: the operator, its arguments and its keywords.
        out: what it gave.
        tensor: the part of that which is asked for.
        computed: whether there is a result already, from guesses.
    """
    func = call[0]
    if not _are_places(func, out, tensor):
        return None
    if func.overloadpacket in _ORDERS and not computed and tensor.dim():
        dim = (dim_of(call) or 0) % tensor.dim()
        shape = [-1 if i == dim else 1 for i in range(tensor.dim())]
        return torch.arange(tensor.shape[dim]).view(shape).expand(tensor.shape)
    below = _below_of_places(call)
    if below is None or func.overloadpacket in _ORDERS or (computed and func.overloadpacket in _DRAWS):
        return None
    return (torch.arange(tensor.numel()) % max(below, 1)).view(tensor.shape)


def _are_places(func: Any, out: Any, tensor: torch.Tensor) -> bool:
    if func.overloadpacket in _WITH_VALUES:
        return isinstance(out, (list, tuple)) and len(out) > 1 and tensor is out[1]
    return func.overloadpacket in _ORDERS | _LARGEST | _DRAWS


def below(book: StorageBook, call: OperatorCall, out: Any, tensor: torch.Tensor) -> int | None:
    """The number below which all integers of a result are, none of them negative; None where none is known.

    Args:
        book: the storages.
        call: the operator, its arguments and its keywords.
        out: what it gave.
        tensor: the part of that which is asked for.
    """
    func, args, _kwargs = call
    packet = func.overloadpacket
    if packet is _aten.randint:
        numbers = [value for value in args if isinstance(value, int)]
        return numbers[-1] if numbers and (len(numbers) == 1 or numbers[0] >= 0) else None
    if packet in _MOVES and args:
        given = args[0] if isinstance(args[0], (list, tuple)) else (args[0],)
        known = [_below_of(book, one) for one in given if isinstance(one, torch.Tensor)]
        return None if not known or None in known else max(number for number in known if number is not None)
    return _below_of_places(call) if _are_places(func, out, tensor) else None


def _below_of(book: StorageBook, tensor: torch.Tensor) -> int | None:
    entry = book.find(tensor)
    return None if entry is None else entry.below


def _below_of_places(call: OperatorCall) -> int | None:
    given = call[1][0] if call[1] else None
    if not isinstance(given, torch.Tensor):
        return None
    dim = dim_of(call)
    if dim is None:
        return given.numel()
    return given.shape[dim] if given.dim() else 1


def dim_of(call: OperatorCall) -> int | None:
    """The dimension along which it looks, by its schema; the last one where it names none."""
    func, args, kwargs = call
    for i, argument in enumerate(func._schema.arguments):
        if argument.name == "dim":
            value = args[i] if i < len(args) else kwargs.get("dim", argument.default_value)
            return None if value is None else int(value)
    return -1
