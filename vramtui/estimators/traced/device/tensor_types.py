"""`torch.cuda.FloatTensor` and its like: old names for tensors of one dtype on the card."""

from typing import Any

import torch

from vramtui.estimators.traced.device.patches import Patches

_TYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


class _OfCard(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype is cls.dtype

    def __call__(cls, *given: Any) -> Any:
        """A tensor of these sizes, or with the values in a list."""
        if len(given) == 1 and not isinstance(given[0], (int, torch.Size)):
            return torch.tensor(given[0], dtype=cls.dtype, device="cuda")
        sizes = given[0] if given and isinstance(given[0], torch.Size) else given
        return torch.empty(tuple(sizes) or (0,), dtype=cls.dtype, device="cuda")


def install(patches: Patches) -> None:
    """Give `torch.cuda` these names, and let them be the default type."""
    for name, dtype in _TYPES.items():
        patches.set(torch.cuda, name, _OfCard(name, (), {"dtype": dtype, "is_cuda": True}))
    plain = torch.set_default_tensor_type

    def set_default_tensor_type(kind: Any) -> None:
        name = kind.removeprefix("torch.cuda.") if isinstance(kind, str) else ""
        if name in _TYPES:
            kind = getattr(torch.cuda, name)
        if isinstance(kind, _OfCard):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("cuda")
        else:
            torch.set_default_device("cpu")
            plain(kind)

    patches.set(torch, "set_default_tensor_type", set_default_tensor_type)
