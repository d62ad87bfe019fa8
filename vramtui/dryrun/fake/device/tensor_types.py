"""`torch.cuda.FloatTensor` and its like: old names for tensors of one dtype on the card."""

from typing import Any

import torch

from vramtui.dryrun.fake.device.patches import Patches

_TYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "CharTensor": torch.int8, "ShortTensor": torch.int16,
    "IntTensor": torch.int32, "LongTensor": torch.int64, "BoolTensor": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


class _OfCard(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype is cls.dtype

    def __call__(cls, *given: Any) -> Any:
        """Make a tensor of these sizes, or with the values in a list."""
        if len(given) == 1 and isinstance(given[0], torch.Tensor):
            return given[0].detach()
        if len(given) == 1 and not isinstance(given[0], (int, torch.Size)):
            return torch.tensor(given[0], dtype=cls.dtype, device="cuda")
        sizes = given[0] if given and isinstance(given[0], torch.Size) else given
        return torch.empty(tuple(sizes) or (0,), dtype=cls.dtype, device="cuda")


def install(patches: Patches) -> None:
    """Give `torch.cuda` these names, and let them be the default type and what `Tensor.type` takes and tells."""
    for name, dtype in _TYPES.items():
        patches.set(torch.cuda, name, _OfCard(name, (), {"dtype": dtype, "is_cuda": True}))
    plain, plain_new, plain_type = torch.set_default_tensor_type, torch.Tensor.__new__, torch.Tensor.type
    default: list[_OfCard] = []

    def by_name(kind: Any) -> Any:
        name = kind.removeprefix("torch.cuda.") if isinstance(kind, str) and kind.startswith("torch.cuda.") else ""
        return getattr(torch.cuda, name) if name in _TYPES else kind

    def make(kind: Any, *given: Any, **kwargs: Any) -> Any:
        """`torch.Tensor(...)` makes one of the default type (torch/csrc/utils/tensor_new.cpp, `base_tensor_ctor`)."""
        if default and kind is torch.Tensor and not kwargs:
            return default[0](*given)
        return plain_new(kind, *given, **kwargs)

    def set_default_tensor_type(kind: Any) -> None:
        kind = by_name(kind)
        default.clear()
        if not isinstance(kind, _OfCard):
            torch.set_default_device("cpu")
            plain(kind)
            return
        default.append(kind)
        if "__new__" not in vars(torch.Tensor):
            patches.set(torch.Tensor, "__new__", staticmethod(make))
        torch.set_default_dtype(kind.dtype)
        torch.set_default_device("cuda")

    def type_of(tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        kind = by_name(dtype)
        if isinstance(kind, _OfCard):
            return tensor.to("cuda", kind.dtype, non_blocking=non_blocking)
        if kind is None and tensor.is_cuda and tensor.dtype in _NAMES:
            return f"torch.cuda.{_NAMES[tensor.dtype]}"
        return plain_type(tensor, kind, non_blocking, **kwargs)

    patches.set(torch, "set_default_tensor_type", set_default_tensor_type)
    patches.set(torch.Tensor, "type", type_of)
