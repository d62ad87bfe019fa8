"""Operators that CUDA makes of other kernels than a device that torch does not know would."""

import functools
from typing import Any

import torch

_OPS: Any = torch.ops.aten
_WHOLE_ON_CUDA = ("silu_backward", "mish_backward", "native_channel_shuffle", "_fused_rms_norm")


def install() -> "torch.library.Library":
    """Keep them whole; keep the returned library.

    The kernels are never run: the mode above answers first. That they exist keeps torch from decomposing.
    """
    library = torch.library.Library("aten", "IMPL")
    for name in _WHOLE_ON_CUDA:
        library.impl(name, _never, "PrivateUse1")
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        library.impl("softmax.int", _softmax, key)
        library.impl("log_softmax.int", _log_softmax, key)
        library.impl("group_norm", _group_norm, key)
        library.impl("one_hot", _one_hot, key)
    return library


@functools.cache
def find_maker(func: Any) -> Any:
    """Find the key whose kernel makes an operator of others (linear of addmm), which arrives whole in inference mode,
    or for a tensor made in it.

    It is the device's where attention is steered, or else that of all devices; None for any other operator.
    """
    known, name = torch._C._dispatch_has_kernel_for_dispatch_key, func.name()
    if func.namespace != "aten" or not known(name, "CompositeImplicitAutograd"):
        return None
    keys = torch._C.DispatchKey
    return keys.PrivateUse1 if known(name, "PrivateUse1") else keys.CompositeImplicitAutograd


def _softmax(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """The kernel reads half precision and writes fp32 where that is asked for (ATen/native/SoftMax.cpp, softmax)."""
    return _OPS._softmax(*_read_as(tensor, dim, dtype))


def _log_softmax(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Decompose log_softmax into a cast and its kernel (ATen/native/SoftMax.cpp, log_softmax)."""
    return _OPS._log_softmax(*_read_as(tensor, dim, dtype))


def _group_norm(
    tensor: torch.Tensor, groups: int, weight: Any = None, bias: Any = None, epsilon: float = 1e-5, _cudnn: bool = True
) -> Any:
    """CUDA's kernel takes a copy of a channels-last input (ATen/native/group_norm.cpp, 2.13), kept for backward.

    Args:
        tensor: [batch, channels, ...].
        groups: of channels.
        weight: a number a channel, or None.
        bias: as `weight`.
        epsilon: added to the variance.
    """
    batch, channels = tensor.shape[:2]
    weight = None if weight is None else weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    places = tensor.numel() // (batch * channels) if batch * channels else 0
    contiguous = tensor.contiguous()
    return _OPS.native_group_norm(contiguous, weight, bias, batch, channels, places, groups, epsilon)[0]


def _one_hot(classes: torch.Tensor, number: int = -1) -> Any:
    """CUDA lays ones into zeros, and fake tensors would compare with each class (ATen/native/Onehot.cpp, 2.13).

    Args:
        classes: whole numbers.
        number: of classes; -1: one more than the largest.
    """
    if classes.dtype is not torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not classes.numel() and number <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if number == -1:
        number = int(classes.max().item()) + 1
    elif number < 1:
        raise RuntimeError("num_classes should be positive")
    if not classes.numel():
        return classes.new_empty((*classes.shape, number))
    return classes.new_zeros((*classes.shape, number)).scatter_(-1, classes.unsqueeze(-1), 1)


def _read_as(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None) -> tuple[torch.Tensor, int, bool]:
    if tensor.dtype is torch.float16 and dtype is torch.float32:
        return tensor, dim, True
    return (tensor if dtype is None else tensor.to(dtype)), dim, False


def _never(*_args: Any, **_kwargs: Any) -> Any:
    raise AssertionError("reached a kernel of the simulated device")
