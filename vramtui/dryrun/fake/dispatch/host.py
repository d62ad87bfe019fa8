"""Which tensors stay real during a trace: small ones on the CPU, integers there at any size, what comes from files.

Samplers, collating, counters and checkpoints work on such tensors as on any; only what could be large (weights made on
the CPU) is a fake tensor from the start. What meets a fake tensor becomes one.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

MOST_INTEGERS = 1 << 24
MOST_FRACTIONS = 1 << 10
_MOST_READ = 1 << 22  # images and data sets of some MB are worked on as they are; larger fractions become fake
_HEAVY = {
    "mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "convolution", "_convolution", "_cdist_forward",
    "_scaled_dot_product_flash_attention_for_cpu", "native_layer_norm", "native_batch_norm",
}  # fmt: skip
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
_COUNTED = ("randperm", "arange")
_SIZED_ANEW = {"new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"}


def stays_real(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the operator is to run as it is, on real tensors."""
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return False
    if args and type(args[0]) is FakeTensor:
        return False
    tensors = 0
    for tensor in _tensors((*args, *kwargs.values()) if kwargs else args):
        if isinstance(tensor, FakeTensor) or not (_light(func, tensor) or _takes_only_kind(func, args)):
            return False
        tensors += 1
    return tensors > 0 or _makes_little(func, args, kwargs)


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Those among arguments, and in lists and tuples among these."""
    for value in values:
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, torch.Tensor):
                yield one


def _light(func: Any, tensor: torch.Tensor) -> bool:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    if func.is_view or tensor.dtype in _INTEGERS:
        return tensor.numel() <= MOST_INTEGERS or func.is_view
    if func.overloadpacket.__name__ in _HEAVY:
        return tensor.numel() <= MOST_FRACTIONS
    return tensor.numel() <= _MOST_READ


def _takes_only_kind(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a factory makes few elements of a tensor's type, however many that has: as a deep copy begins."""
    if func.overloadpacket.__name__ not in _SIZED_ANEW or args[0].device.type != "cpu" or len(args) < 2:
        return False
    return math.prod(int(size) for size in args[1]) <= MOST_FRACTIONS


def _makes_little(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a factory that is given no tensor makes integers, or few fractions."""
    if func.namespace != "aten" or not any(argument.name == "device" for argument in func._schema.arguments):
        return False
    name = func.overloadpacket.__name__
    if name in _COUNTED:
        numbers = [value for value in args if isinstance(value, (int, float))]
        return bool(numbers) and max(map(abs, numbers)) <= MOST_INTEGERS
    sizes = args[0] if args and isinstance(args[0], (list, tuple)) else ()
    if name == "randint":
        sizes = next((value for value in args if isinstance(value, (list, tuple))), ())
    elements = math.prod(int(size) for size in sizes)
    dtype = kwargs.get("dtype")
    if dtype in _INTEGERS or (name == "randint" and dtype is None) or (name == "full" and _whole(args, dtype)):
        return elements <= MOST_INTEGERS
    return elements <= MOST_FRACTIONS and (
        (bool(args) and isinstance(args[0], (list, tuple))) or name == "scalar_tensor"
    )


def _whole(args: tuple[Any, ...], dtype: torch.dtype | None) -> bool:
    return dtype is None and len(args) > 1 and isinstance(args[1], int)


def changes_nothing(source: torch.Tensor, kwargs: dict[str, Any]) -> bool:
    """Whether a copy asked for by the name "cuda" would land where `source` already is."""
    if kwargs.get("dtype") not in (None, source.dtype) or kwargs.get("memory_format") is not None:
        return False
    device = kwargs["device"]
    return bool(device.type == source.device.type and device.type != "cpu")
