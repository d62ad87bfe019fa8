"""Batch norm in cuDNN: an input that is not in one piece is copied, and the copy is what backward keeps; so is a
gradient, for as long as backward takes.
"""

import functools
from typing import Any

import torch
from torch.jit import _builtins

from vramtui.estimators.traced.device.patches import Patches

_LEAST_DIMENSIONS = 3
_MOST_IMAGES = {True: 880_801, False: 65_535}
_LEAST_EPSILON = 1e-5


def install(patches: Patches) -> None:
    """Copy what `_batch_norm_impl_index` and `cudnn_batch_norm_backward` copy (PyTorch 2.13, aten/src/ATen/native,
    Normalization.cpp and cudnn/BatchNorm.cpp).
    """
    plain = torch.batch_norm

    @functools.wraps(plain)
    def batch_norm(tensor: Any, *rest: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs or not _takes_cudnn(tensor, rest):
            return plain(tensor, *rest, **kwargs)
        form = _memory_format(tensor)
        answer = plain(tensor.contiguous(memory_format=form), *rest)
        if answer.requires_grad:
            answer.register_hook(lambda grad: grad.contiguous(memory_format=form))
        return answer

    _builtins._register_builtin(batch_norm, "aten::batch_norm")  # what torch.jit.script takes it for
    patches.set(torch, "batch_norm", batch_norm)


def _takes_cudnn(tensor: Any, rest: tuple[Any, ...]) -> bool:
    """What `_select_batch_norm_backend` asks there."""
    weight, bias, mean, variance, training, _, epsilon, enabled = rest
    return bool(
        tensor.is_cuda
        and weight is not None
        and bias is not None
        and torch.bfloat16 not in (tensor.dtype, weight.dtype)
        and (tensor.dtype is not torch.float16 or weight.dtype is torch.float32)
        and (mean is None) is (variance is None)
        and (training or mean is not None)
        and tensor.dim() >= _LEAST_DIMENSIONS
        and tensor.shape[0] <= _MOST_IMAGES[bool(training)]
        and epsilon >= _LEAST_EPSILON
        and enabled
    )


def _memory_format(tensor: torch.Tensor) -> torch.memory_format:
    for dimensions, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dimensions and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=form):
            return form
    return torch.contiguous_format
