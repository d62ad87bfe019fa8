"""Places that code rules out before it looks for the largest value, or draws one: visited towns of a decoder, actions
that are not allowed, words that may not be repeated.

What is filled, chosen or added there is so low that no healthy job takes such a place (minus infinity, or zero among
chances). Values of the others nobody has; which places are left is known where the mask is, so that a guess among them
keeps what code asserts of its choice, and loops that fill a mask end as they do.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from vramtui.estimators.traced.accounting.storages import StorageBook
from vramtui.estimators.traced.dispatch import guesses, values
from vramtui.estimators.traced.kernels.registry import by_operator

_aten: Any = torch.ops.aten
OperatorCall = tuple[Any, tuple[Any, ...], dict[str, Any]]
_MOST = 1 << 16  # places, as of the masks whose values are carried
_LOW = -1e4  # the largest number that is taken to rule out: what code writes for minus infinity in half precision
# What gives a number for each of the first argument's, in an order that stays.
_KEEPS = {
    _aten._to_copy, _aten.clone, _aten._unsafe_view, _aten.add, _aten.sub, _aten.mul, _aten.div, _aten.exp, _aten.log,
    _aten._softmax, _aten._log_softmax,
}  # fmt: skip
_TO_CHANCES = {_aten.exp, _aten._softmax}
_BY_A_MASK = {_aten.add: -math.inf, _aten.mul: 0.0}  # and what comes of what they rule out
_FILLS = {_aten.masked_fill, _aten.masked_fill_}
_OVERWRITES = {_aten.zero_, _aten.fill_, _aten.copy_}
_ONE = {_aten.argmax, _aten.max, _aten.multinomial}
_ORDERS = {_aten.topk: True, _aten.sort: False, _aten.argsort: False}  # whether the largest come first, unasked


def follow(book: StorageBook, call: OperatorCall, out: Any) -> None:
    """Carry ruled out places through an operator, and choose among those that are left where it chooses.

    Args:
        book: the storages.
        call: the operator, its arguments and its keywords.
        out: what it gave.
    """
    rule = _rule_of(call[0])
    if rule is None or not call[1] or not isinstance(call[1][0], torch.Tensor) or call[1][0].numel() > _MOST:
        return
    with torch._C._DisableTorchDispatch():
        rule(book, call, out)


@by_operator
def _rule_of(func: Any) -> Callable[[StorageBook, OperatorCall, Any], None] | None:
    return _RULES.get(func.overloadpacket)


def _find(book: StorageBook, tensor: torch.Tensor) -> torch.Tensor | None:
    """The places of `tensor` that are ruled out; None where none is."""
    return values.ruled_out_of(book.find(tensor), tensor)


def _mark(book: StorageBook, tensor: torch.Tensor, places: torch.Tensor | None, low: float) -> None:
    entry = book.find(tensor)
    if entry is None or places is None or not places.any():
        return
    if entry.ruled_out is None:
        entry.ruled_out = torch.zeros(max(entry.nbytes // tensor.element_size(), 1), dtype=torch.bool).untyped_storage()
    known = values.ruled_out_of(entry, tensor)
    assert known is not None
    known.logical_or_(places)
    entry.low = low


def _read(book: StorageBook, given: Any) -> Any:
    """A number or a tensor's values, guessed or not; None where there are none."""
    if not isinstance(given, torch.Tensor):
        return given
    if type(given) is not torch.Tensor:
        return values.value_of(book, given)
    return given


def _is_low(value: Any) -> bool:
    number = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
    return isinstance(number, (int, float)) and (number <= _LOW or number == 0)


def _keep(book: StorageBook, call: OperatorCall, out: Any) -> None:
    """The result's numbers stand where those of the first argument do; a mask of numbers rules out by its own."""
    func, args, _kwargs = call
    packet = func.overloadpacket
    if not isinstance(out, torch.Tensor) or out.shape != args[0].shape:
        return
    before = _find(book, args[0])
    if before is not None:
        low = getattr(book.find(args[0]), "low", 0.0)
        _mark(book, out, before, 0.0 if packet in _TO_CHANCES else -math.inf if packet is _aten.log else low)
    elif len(args) > 1 and packet in _BY_A_MASK and isinstance(args[1], torch.Tensor):
        places = _find_by_mask(book, args[1], added=packet is _aten.add)
        if places is not None:
            _mark(book, out, places.broadcast_to(out.shape), _BY_A_MASK[packet])


def _find_by_mask(book: StorageBook, mask: torch.Tensor, *, added: bool) -> torch.Tensor | None:
    """What a mask of numbers rules out: what is very low where it is `added`, zeros among ones where it multiplies."""
    marked, entry = _find(book, mask), book.find(mask)
    if marked is not None and entry is not None:
        return marked if (entry.low <= _LOW) == added else None
    value = _read(book, mask)
    if value is None or value.numel() < 2 or not value.is_floating_point():
        return None
    places: torch.Tensor | None = value <= _LOW if added else value == 0
    return places if added or bool(((value == 0) | (value == 1)).all()) else None


def _fill(book: StorageBook, call: OperatorCall, out: Any) -> None:
    """args: tensor, mask, value."""
    given, mask, filled = call[1][:3]
    if out is not given:
        _keep(book, (call[0], (given,), {}), out)
    _write(book, out, _read(book, mask), _read(book, filled))


def _write(book: StorageBook, tensor: torch.Tensor, mask: torch.Tensor | None, filled: Any) -> None:
    if mask is None or mask.dtype not in (torch.bool, torch.uint8) or filled is None:
        return
    places = mask.bool().broadcast_to(tensor.shape)
    if _is_low(filled):
        _mark(book, tensor, places, float(filled))
    elif (before := _find(book, tensor)) is not None:
        before.logical_and_(~places)


def _put(book: StorageBook, call: OperatorCall, _out: Any) -> None:
    """args: tensor, places (a mask alone, as `x[mask] = value` says it), value."""
    tensor, indices, filled = call[1][:3]
    mask = indices[0]
    if len(indices) > 1 or not isinstance(mask, torch.Tensor) or mask.shape != tensor.shape[: mask.dim()]:
        return
    known = _read(book, mask)
    if known is not None:
        _write(book, tensor, known.view(*known.shape, *[1] * (tensor.dim() - known.dim())), _read(book, filled))


def _where(book: StorageBook, call: OperatorCall, out: Any) -> None:
    """args: condition, what is taken where it holds, what is taken elsewhere."""
    if len(call[1]) < 3 or not isinstance(out, torch.Tensor):
        return
    mask = _read(book, call[1][0])
    for other, holds in ((call[1][2], False), (call[1][1], True)):
        filled = _read(book, other)
        if mask is not None and filled is not None and _is_low(filled):
            _mark(book, out, (mask.bool() == holds).broadcast_to(out.shape), float(filled))


def _overwrite(book: StorageBook, call: OperatorCall, _out: Any) -> None:
    known = _find(book, call[1][0])
    if known is not None:
        known.fill_(False)


def _choose(book: StorageBook, call: OperatorCall, out: Any) -> None:
    """Put guesses among the places that are left into what an operator chooses, or puts in order."""
    func, args, kwargs = call
    packet = func.overloadpacket
    places = out[1] if isinstance(out, (list, tuple)) and len(out) > 1 else out
    out_of = _find(book, args[0])
    entry = book.find(places) if isinstance(places, torch.Tensor) else None
    if out_of is None or entry is None or places.dtype is not torch.int64 or not args[0].dim():
        return
    dim = guesses.dim_of(call)
    last = out_of.reshape(-1) if dim is None else out_of.movedim(dim, -1)
    first_left = last.to(torch.uint8).argsort(stable=True, dim=-1)
    if packet in _ORDERS:
        largest = _argument(func, args, kwargs, "largest" if packet is _aten.topk else "descending", _ORDERS[packet])
        order = first_left if largest else first_left.flip(-1)
        chosen = order.movedim(-1, dim or 0)[tuple(slice(size) for size in places.shape)]
    else:
        left = (~last).sum(-1, keepdim=True).clamp(min=1)
        turn = torch.arange(places.numel()).view(places.shape)
        if packet is not _aten.multinomial:
            turn = turn.view(left.shape)
        chosen = first_left.gather(-1, turn % left).view(places.shape)
    values.put(book, places, chosen)
    entry.guessed = True


def _argument(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, default: Any) -> Any:
    for i, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            return args[i] if i < len(args) else kwargs.get(name, argument.default_value)
    return default


_RULES: dict[Any, Callable[[StorageBook, OperatorCall, Any], None]] = {
    **dict.fromkeys(_KEEPS, _keep),
    **dict.fromkeys(_FILLS, _fill),
    **dict.fromkeys(_OVERWRITES, _overwrite),
    **dict.fromkeys((*_ONE, *_ORDERS), _choose),
    _aten.index_put_: _put,
    _aten.where: _where,
}
