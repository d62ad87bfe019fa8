"""Results of the commonest operators on plain tensors: contiguous, of one dtype of fractions, on one device.

There a result has the shape of its operands, or a product's, and is contiguous (TensorIterator's fast path, ATen's
`mm`, `addmm`, `bmm`). `FakeTensorMode` comes to the same by an operator written in Python wherever it has seen no call
of the very same shapes, as in generation, where each token makes all of them longer: 1 to 3 ms each, where this takes
0.05.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.estimators.traced.device.device import SIM
from vramtui.estimators.traced.dispatch.known_results import fake_of

aten = torch.ops.aten
ONE = (
    aten.gelu.default, aten.relu.default, aten.silu.default, aten.sigmoid.default, aten.tanh.default,
    aten.exp.default, aten.log.default, aten.neg.default, aten.sqrt.default, aten.rsqrt.default, aten.cos.default,
    aten.sin.default, aten.abs.default, aten.erf.default, aten.pow.Tensor_Scalar, aten.clone.default,
)  # fmt: skip
TWO = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.maximum.default)
# By id: the hash of an operator is a function in Python.
_ONE, _TWO = frozenset(map(id, ONE)), frozenset(map(id, TWO))
PRODUCTS = {id(aten.mm.default): 2, id(aten.bmm.default): 3, id(aten.addmm.default): 2}
# What optimizers do to all parameters at once; each gives nothing back, and no tensor another shape.
IN_PLACE_ON_LISTS = frozenset(
    id(getattr(getattr(aten, f"_foreach_{name}_"), overload))
    for name, overloads in (
        ("add", ("Scalar", "List", "ScalarList")),
        ("sub", ("Scalar", "List", "ScalarList")),
        ("mul", ("Scalar", "List", "ScalarList")),
        ("div", ("Scalar", "List", "ScalarList")),
        ("lerp", ("Scalar",)),
        ("addcmul", ("Scalar", "ScalarList")),
        ("addcdiv", ("Scalar", "ScalarList")),
        ("sqrt", ("default",)),
        ("neg", ("default",)),
    )
    for overload in overloads
)
LAYER_NORM = aten.native_layer_norm.default
_KEYWORDS = {"alpha", "beta", "approximate"}


def plain_result(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `func` gives for plain tensors; NotImplemented for anything else."""
    if func is LAYER_NORM:
        return _normed(*args)
    operator = id(func)
    if operator in IN_PLACE_ON_LISTS:
        return None if _are_alike(*args, **kwargs) else NotImplemented
    if operator in _ONE:
        first = args[0]
        shape = first.shape if _are_plain(args[:1]) else None
    elif operator in _TWO:
        first, other = args
        if isinstance(other, torch.Tensor):
            same = _are_plain(args) and first.shape == other.shape
        else:
            same = isinstance(other, (int, float)) and _are_plain(args[:1])
        shape = first.shape if same else None
    elif operator in PRODUCTS:
        first, other = args[-2:]
        added = args[:-2]
        known = _are_plain(added) and all(tensor.dtype is first.dtype for tensor in added)
        shape = _product(first, other, PRODUCTS[operator]) if known else None
    else:
        return NotImplemented
    if shape is None or not (kwargs.keys() <= _KEYWORDS or _copies_plainly(kwargs)):
        return NotImplemented
    with torch._C._DisableTorchDispatch():
        meta = torch.empty(shape, dtype=first.dtype, device="meta")
        return fake_of(first.fake_mode, meta, first._fake_device)


def _normed(first: Any, sizes: Any, weight: Any, bias: Any, _eps: float) -> Any:
    """The result on the card, with mean and rstd in at least single precision (layer_norm_kernel.cu)."""
    given = [tensor for tensor in (first, weight, bias) if tensor is not None]
    if not _are_plain(tuple(given)) or first._fake_device.type != SIM or first.numel() == 0:
        return NotImplemented
    outer = first.dim() - len(sizes)
    if outer < 0 or list(first.shape[outer:]) != list(sizes):
        return NotImplemented
    statistics_dtype = torch.float32 if first.dtype in {torch.half, torch.bfloat16} else first.dtype
    one_each = (*first.shape[:outer], *(1 for _ in sizes))
    with torch._C._DisableTorchDispatch():
        return tuple(
            fake_of(first.fake_mode, torch.empty(shape, dtype=dtype, device="meta"), first._fake_device)
            for shape, dtype in ((first.shape, first.dtype), (one_each, statistics_dtype), (one_each, statistics_dtype))
        )


def _are_alike(tensors: Any, *others: Any, alpha: Any = 1, value: Any = 1) -> bool:
    """Whether the tensors in lists are plain, those at one place of one shape, and all else plain numbers."""
    if not tensors or not _are_plain(tensors):
        return False
    numbers, first = [alpha, value], tensors[0]
    for other in others:
        if not isinstance(other, (list, tuple)):
            numbers.append(other)
        elif len(other) != len(tensors):
            return False
        elif isinstance(other[0], torch.Tensor):
            if not _are_plain((first, *other)) or any(
                one.shape != its.shape for one, its in zip(tensors, other, strict=True)
            ):
                return False
        else:
            numbers += other
    return all(type(number) in {int, float} for number in numbers)


def _are_plain(tensors: tuple[Any, ...]) -> bool:
    """Whether all are contiguous fake tensors of fractions, of one dtype and device, whose numbers nobody knows."""
    if not tensors:
        return True
    kind, device = tensors[0].dtype, getattr(tensors[0], "_fake_device", None)
    return kind.is_floating_point and all(
        type(tensor) is FakeTensor
        and tensor.constant is None
        and tensor.dtype is kind
        and tensor._fake_device == device
        and tensor.is_contiguous()
        for tensor in tensors
    )


def _product(first: Any, other: Any, dimensions: int) -> tuple[int, ...] | None:
    """The shape of a product of matrices, which need not be contiguous themselves; None where it is no plain one."""
    if (
        type(first) is not FakeTensor
        or type(other) is not FakeTensor
        or first.dtype is not other.dtype
        or first._fake_device != other._fake_device
        or not first.dim() == other.dim() == dimensions
        or first.shape[-1] != other.shape[-2]
        or first.shape[:-2] != other.shape[:-2]
        or first.constant is not None
        or other.constant is not None
    ):
        return None
    return (*first.shape[:-1], other.shape[-1])


def _copies_plainly(kwargs: dict[str, Any]) -> bool:
    return kwargs.keys() == {"memory_format"} and kwargs["memory_format"] in {
        torch.contiguous_format,
        torch.preserve_format,
    }
