"""Shapes that follow from data nobody has: taken as large as they can be, or a share of that, and told with the line.

`memory.bound(n, operator)` is how many of `n` places are taken to be chosen.
"""

from collections.abc import Callable
from typing import Any

import torch

from vramtui.dryrun.fake.dispatch import values

_aten: Any = torch.ops.aten
_LONG = torch.int64
Bound = Callable[[Any], Any]


def bounded(call: Any) -> Any:
    """The operator's outputs at their bound, allocated; NotImplemented where there is none for it."""
    name = call.func.name().partition(".")[0]
    rule = _RULES.get(name)
    return NotImplemented if rule is None else rule(call)


def _make(call: Any, shape: list[int], dtype: torch.dtype, device: Any = None) -> Any:
    device = call.args[0].device if device is None else device
    return _aten.empty.memory_format(shape, dtype=dtype, device=device)


def _nonzero(call: Any) -> Any:
    """args: tensor; the result is the transposed one of [dimensions, places] (ATen/native/cuda/Nonzero.cu)."""
    tensor = call.args[0]
    count = call.memory.bound(tensor.numel(), call.func)
    return _make(call, [tensor.dim(), count], _LONG).t()


def _masked_select(call: Any) -> Any:
    """args: tensor, mask."""
    tensor, mask = call.args
    count = call.memory.bound(torch.broadcast_shapes(tensor.shape, mask.shape).numel(), call.func)
    return _make(call, [count], tensor.dtype)


def _index(call: Any) -> Any:
    """args: tensor, indices, with masks among them: each is as many places as it is taken to have, or as many as were
    written through it before, which is what the backward of `x[mask] = y` reads.
    """
    tensor, indices = call.args
    places: list[Any] = []
    for index in indices:
        if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
            entry = call.memory.book.find(index)
            written = entry.places if entry is not None else None
            count = call.memory.bound(index.numel(), call.func) if written is None else written
            places += [_make(call, [count], _LONG, tensor.device)] * index.dim()
        else:
            places.append(index)
    return _aten.index.Tensor(tensor, places)


def _unique(call: Any) -> Any:
    """args: tensor, then what else is wanted; every value is taken to be another, of as many as there can be."""
    tensor = call.args[0]
    dim = call.args[1] if call.func.overloadpacket.__name__.startswith("unique_dim") else None
    whole = tensor.numel() if dim is None else tensor.shape[dim]
    below = _below(call) if dim is None else None
    count = call.memory.bound(whole if below is None else min(whole, below), call.func)
    shape = [count] if dim is None else [count if i == dim % tensor.dim() else n for i, n in enumerate(tensor.shape)]
    inverse = list(tensor.shape) if dim is None else [whole]
    return _make(call, shape, tensor.dtype), _make(call, inverse, _LONG), _make(call, [count], _LONG)


def _below(call: Any) -> int | None:
    """The number below which the integers of the first argument are; None where none is known."""
    entry = call.memory.book.find(call.args[0])
    return None if entry is None else entry.below


def _bincount(call: Any) -> Any:
    """args: tensor, weights, minlength; the largest value is as large as it can be, or else `minlength` bounds it."""
    weights = call.args[1] if len(call.args) > 1 else call.kwargs.get("weights")
    fewest = call.args[2] if len(call.args) > 2 else call.kwargs.get("minlength", 0)
    count = call.memory.bound(max(int(fewest), _below(call) or 1), call.func, share=False)
    return _make(call, [count], _LONG if weights is None else torch.float64)


def _repeat(call: Any) -> Any:
    """args: repeats; each is taken to be one."""
    call.memory.bound(call.args[0].numel(), call.func, share=False)
    return _make(call, [call.args[0].numel()], _LONG)


def _lstsq(call: Any) -> Any:
    """args: a, b; residuals where a is higher than wide, as of full rank; no rank and no singular values, which the one
    way that CUDA has does not tell (ATen/native/BatchLinearAlgebra.cpp, `linalg_lstsq_out`).
    """
    a, b = call.args[:2]
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and tuple(b.shape) == tuple(a.shape[:-1]))
    batch = list(torch.broadcast_shapes(a.shape[:-2], b.shape[:-1] if vector else b.shape[:-2]))
    columns = [] if vector else [b.shape[-1]]
    solution = _make(call, [*batch, a.shape[-1], *columns], a.dtype)
    residuals = [*batch, *columns] if a.shape[-2] > a.shape[-1] else [0]
    parts = [_make(call, residuals, a.dtype), _make(call, [0], _LONG), _make(call, [0], a.dtype)]
    return solution, *parts


def _nms(call: Any) -> Any:
    """args: boxes, scores, threshold; every box may stay."""
    return _make(call, [call.memory.bound(call.args[0].shape[0], call.func)], _LONG)


def _packed(call: Any) -> Any:
    """args: padded input, lengths, whether the batch is first; sequences of unknown length are taken to be full."""
    tensor, lengths, batch_first = call.args
    batch, time = (tensor.shape[0], tensor.shape[1]) if batch_first else (tensor.shape[1], tensor.shape[0])
    known = values.certain_value(call.memory.book, lengths)
    if known is None:
        call.memory.bound(batch * time, call.func, share=False)
    with torch._C._DisableTorchDispatch():
        known_lengths = torch.full((batch,), time) if known is None else known
        sizes = (known_lengths.unsqueeze(0) > torch.arange(int(known_lengths.max())).unsqueeze(1)).sum(1)
        rows = int(sizes.sum())
    return _make(call, [rows, *tensor.shape[2:]], tensor.dtype), sizes


_RULES: dict[str, Bound] = {
    "aten::nonzero": _nonzero,
    "aten::linalg_lstsq": _lstsq,
    "aten::masked_select": _masked_select,
    "aten::index": _index,
    "aten::_unique": _unique,
    "aten::_unique2": _unique,
    "aten::unique_dim": _unique,
    "aten::unique_dim_consecutive": _unique,
    "aten::unique_consecutive": _unique,
    "aten::bincount": _bincount,
    "aten::repeat_interleave": _repeat,
    "aten::_pack_padded_sequence": _packed,
    "torchvision::nms": _nms,
}
