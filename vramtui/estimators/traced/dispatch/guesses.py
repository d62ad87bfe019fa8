"""What stands for integers and conditions that follow from data, where another number than zero is as likely and sane.

Places of sorted values are an order, so that what is put in that order keeps its parts; the places of largest values
go through all there are, as the classes of a healthy job's answers do; as many conditions hold as there are places
where they are counted, as where data decides a shape (`SimulatedMemory.bound`); and no number is NaN or infinite.
"""

import math
from typing import Any

import torch

from vramtui.estimators.traced.accounting.storages import Chances, StorageBook, StorageEntry
from vramtui.estimators.traced.kernels.registry import by_operator

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
_CHANCES = {_aten._softmax: Chances.PLAIN, _aten._log_softmax: Chances.LOGARITHMS}
_OF_CHANCES = {
    (_aten.exp, Chances.LOGARITHMS): Chances.PLAIN, (_aten.log, Chances.PLAIN): Chances.LOGARITHMS,
    **{(packet, kind): kind for packet in (_aten._to_copy, _aten.clone, _aten._unsafe_view) for kind in Chances},
}  # fmt: skip
_NEVER = {_aten.isnan, _aten.isinf, _aten.isposinf, _aten.isneginf}
_CHOOSE = {_aten.nonzero, _aten.index, _aten.masked_select}
_COMPARISONS = {_aten.eq: True, _aten.ne: False}
_KEEP_CHANCES = {packet for packet, _kind in _OF_CHANCES}
OperatorCall = tuple[Any, tuple[Any, ...], dict[str, Any]]


def counts(func: Any) -> bool:
    """Whether an operator counts conditions."""
    return func.overloadpacket in _COUNTS


def keeps_filled(func: Any) -> bool:
    """Whether an operator gives conditions as numbers."""
    return func.overloadpacket is _aten._to_copy


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


def all_places(func: Any, values: tuple[Any, Any] | None, tensor: torch.Tensor) -> torch.Tensor | None:
    """What an operator gives that takes the places where conditions hold, where as many are taken as `tensor` has: the
    first ones; None of any other operator.

    Args:
        func: the operator.
        values: its arguments and keywords, with real tensors.
        tensor: its result, as long as it is taken to be.
    """
    if func.overloadpacket not in _CHOOSE or values is None or not tensor.dim():
        return None
    args = [torch.ones_like(values[0][0]), *values[0][1:]] if func is _aten.nonzero.default else _all_true(values[0])
    try:
        all_of_them: torch.Tensor = func(*args)
    except (RuntimeError, IndexError):  # a condition of another shape
        return None
    first = all_of_them[: tensor.shape[0]]
    return first if first.shape == tensor.shape else None


def _all_true(value: Any) -> Any:
    """Answer with conditions that all hold."""
    if isinstance(value, (list, tuple)):
        return type(value)(_all_true(one) for one in value)
    is_mask = isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8)
    return torch.ones_like(value) if is_mask else value


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


@by_operator
def _tells_chances(func: Any) -> bool:
    return func.overloadpacket in _CHANCES or func.overloadpacket in _KEEP_CHANCES


def note_chances(book: StorageBook, call: OperatorCall, fresh: list[tuple[torch.Tensor, StorageEntry]]) -> None:
    """Remember of each new tensor in `fresh` whether an operator gave chances, or their logarithms."""
    if not _tells_chances(call[0]):
        return
    packet = call[0].overloadpacket
    kind = _CHANCES.get(packet)
    if kind is None and packet in _KEEP_CHANCES and call[1]:
        entry = book.find(call[1][0])
        kind = None if entry is None or entry.chances is None else _OF_CHANCES.get((packet, entry.chances))
    if kind is not None:
        for _tensor, entry in fresh:
            entry.chances = kind


def chance_rows(entry: StorageEntry, value: torch.Tensor) -> torch.Tensor:
    """Chances, or their logarithms, in the shape of `value`: as even in a row as powers of two allow whose sum is one,
    which is what code asks of them that draws by them.

    Args:
        entry: of the tensor that has them.
        value: a real tensor.
    """
    left = torch.ones(value.shape)
    number = left.sum(-1, keepdim=True).clamp(min=1)
    whole = torch.exp2(torch.log2(number).ceil())
    twice = left.cumsum(-1) <= whole - number
    rows = left * (1 + twice.float()) / whole
    return (rows if entry.chances is Chances.PLAIN else rows.log()).to(value.dtype)


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
