"""Values that are known although tensors are fake: small ones that follow from constants, carried in mirrors.

Libraries branch on them: counters of optimizers, position ids, attention masks, random orders of samples. A mirror
belongs to a storage, so every view of it is known with it, and writing through one is seen through all.
"""

from typing import Any

import torch

from vramtui.estimators.traced.storages import Entry, StorageBook

NOT_A_READ: Any = object()
_ITEM = torch.ops.aten._local_scalar_dense.default
_MOST_INTEGERS = 1 << 16
_MOST_FLOATS = 1 << 10
_COPIES = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)


def value_of(book: StorageBook, tensor: torch.Tensor) -> torch.Tensor | None:
    """A real tensor that shares `tensor`'s known values; None where they are not known. Only without dispatch."""
    entry = book.find(tensor)
    if entry is None or entry.mirror is None:
        return None
    out = torch.empty(0, dtype=tensor.dtype)
    return out.set_(entry.mirror, tensor.storage_offset(), tensor.size(), tensor.stride())


def read(book: StorageBook, func: Any, args: tuple[Any, ...]) -> Any:
    """What `.item()` gives: the value where it is known, else zero; NOT_A_READ for every other operator."""
    if func is not _ITEM:
        return NOT_A_READ
    tensor = args[0]
    with torch._C._DisableTorchDispatch():
        value = tensor if type(tensor) is torch.Tensor else value_of(book, tensor)
        if value is not None:
            return value.item()
    return _zero(tensor.dtype)


def _zero(dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return False
    if dtype.is_complex:
        return 0j
    return 0.0 if dtype.is_floating_point else 0


def follow(
    book: StorageBook,
    fresh: list[tuple[torch.Tensor, Entry]],
    asked: tuple[Any, tuple[Any, ...], dict[str, Any]],
    out: Any,
) -> None:
    """Compute an operator truly where everything it reads is known and small; forget what it overwrites otherwise.

    Args:
        book: the storages.
        fresh: the outputs whose storages are new.
        asked: the operator, its arguments and its keywords.
        out: what it gave.
    """
    func, args, kwargs = asked
    mutable = func._schema.is_mutable
    if not mutable and not any(_small(tensor) for tensor, _entry in fresh):
        return
    with torch._C._DisableTorchDispatch():
        real = _real((args, kwargs), book)
        if real is None:
            if mutable:
                _forget(book, func, args, kwargs)
            return
        result = func(*real[0], **real[1])
        if fresh:
            _keep(book, fresh, out, result)


def _small(tensor: torch.Tensor) -> bool:
    most = _MOST_FLOATS if tensor.dtype.is_floating_point or tensor.dtype.is_complex else _MOST_INTEGERS
    return tensor.numel() <= most


class _Unknown(Exception):
    pass


def _real(value: Any, book: StorageBook) -> Any:
    """`value` with every tensor replaced by its known values, on the CPU; None when one is not known."""
    try:
        return _substitute(value, book)
    except _Unknown:
        return None


def _substitute(value: Any, book: StorageBook) -> Any:
    if isinstance(value, torch.Tensor):
        known = value if type(value) is torch.Tensor and value.device.type == "cpu" else value_of(book, value)
        if known is None:
            raise _Unknown
        return known
    if isinstance(value, dict):
        return {key: _substitute(item, book) for key, item in value.items() if key != "pin_memory"}
    if isinstance(value, (list, tuple)):
        return type(value)(_substitute(item, book) for item in value)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, torch.Generator) and value.device.type != "cpu":
        return None
    return value


def _keep(book: StorageBook, fresh: list[tuple[torch.Tensor, Entry]], out: Any, result: Any) -> None:
    """Give the fresh entries of `out` mirrors with the values of `result`."""
    outs = out if isinstance(out, (list, tuple)) else (out,)
    results = result if isinstance(result, (list, tuple)) else (result,)
    wanted = {id(tensor): entry for tensor, entry in fresh}
    for fake, real in zip(outs, results, strict=False):
        entry = wanted.get(id(fake))
        if entry is None or not isinstance(real, torch.Tensor) or not _small(fake):
            continue
        entry.mirror = torch.UntypedStorage(max(entry.nbytes, 1))
        value = value_of(book, fake)
        if value is not None and value.shape == real.shape:
            value.copy_(real)


def _forget(book: StorageBook, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for i, argument in enumerate(func._schema.arguments):
        info = argument.alias_info
        if info is None or not info.is_write:
            continue
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                entry = book.find(tensor)
                if entry is not None:
                    entry.mirror = None
