"""Normalisation layers."""

import functools
from typing import Any

import torch
from torch.jit import _builtins

from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.kernels.copies import form_of
from vramtui.dryrun.fake.kernels.reductions import accumulator_bytes, partial
from vramtui.dryrun.fake.kernels.registry import kernel

_FLOAT = 4
_MANY_ROWS = 64 * 1024
_ROWS_PER_BLOCK = 32


def _straighten(call: Any, *tensors: torch.Tensor) -> None:
    """The kernels read dense rows: a strided or an expanded tensor is copied first (`expect_contiguous`)."""
    for tensor in tensors:
        if not tensor.is_contiguous():
            call.scratch(tensor.numel() * tensor.element_size())


@kernel("native_layer_norm", "_fused_rms_norm")
def norm_forward(call: Any) -> Any:
    """args: input, normalized shape, and more (ATen/native/cuda/layer_norm_kernel.cu)."""
    _straighten(call, call.args[0])
    return call.run()


@kernel("_fused_rms_norm_backward")
def rms_norm_backward(call: Any) -> Any:
    """args: grad, input, normalized shape, rstd, weight, mask."""
    _straighten(call, call.args[1])
    out = call.run()
    _straighten(call, call.args[0])
    return out


@kernel("native_layer_norm_backward")
def layer_norm_backward(call: Any) -> Any:
    """args: grad, input, normalized shape, mean, rstd, weight, bias, mask.

    Over very many short rows the gradients of weight and bias are summed in two passes.
    """
    tensor, shape, weight = call.args[1], call.args[2], call.args[5]
    _straighten(call, tensor)
    out = call.run()
    _straighten(call, call.args[0])
    width = 1
    for size in shape:
        width *= size
    rows = tensor.numel() // max(width, 1)
    if weight is not None and rows > _MANY_ROWS and width // 32 < call.memory.device.limits.multiprocessors // 2:
        blocks = -(-rows // _ROWS_PER_BLOCK)
        for grad in out[1:]:
            if grad is not None:
                call.scratch(blocks * width * grad.element_size())
                sums = torch.ops.aten.empty.memory_format([blocks, width], dtype=grad.dtype, device=grad.device)
                partial(call, sums, (0,), grad.view(-1), accumulator=accumulator_bytes(grad.dtype))
    return out


@kernel("native_group_norm")
def group_norm(call: Any) -> Any:
    """args: input, weight, bias, N, C, HxW, groups, eps; scale and shift are fused per channel first."""
    out = call.run()
    weight, bias, batch, channels, pixels = call.args[1:6]
    if pixels != 1 and (weight is not None or bias is not None):
        call.scratch(batch * channels * _FLOAT)
        call.scratch(batch * channels * _FLOAT)
    return out


@kernel("native_group_norm_backward")
def group_norm_backward(call: Any) -> Any:
    """args: grad, input, mean, rstd, weight, N, C, HxW, groups, mask."""
    weight, batch, channels, pixels, groups, mask = call.args[4:10]
    out = call.run()
    if pixels == 1:
        return out
    call.scratch(batch * channels * _FLOAT)
    call.scratch(batch * channels * _FLOAT)
    if mask[0]:
        if weight is not None:
            call.scratch(batch * channels * _FLOAT)
        call.scratch(batch * groups * _FLOAT)
        call.scratch(batch * groups * _FLOAT)
    return out


def steer(patches: Patches) -> None:
    """Batch norm in cuDNN: an input that is not in one piece is copied, and backward keeps the copy; so is a gradient
    (`_batch_norm_impl_index`, `cudnn_batch_norm_backward` in ATen/native, PyTorch 2.13).
    """
    plain = torch.batch_norm

    @functools.wraps(plain)
    def batch_norm(tensor: Any, *rest: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs or not _takes_cudnn(tensor, rest):
            return plain(tensor, *rest, **kwargs)
        form = torch.contiguous_format if tensor.is_contiguous() else form_of(tensor)
        if not tensor.is_contiguous(memory_format=form):
            form = torch.contiguous_format
        answer = plain(tensor.contiguous(memory_format=form), *rest)
        if answer.requires_grad:
            answer.register_hook(lambda grad: grad.contiguous(memory_format=form))
        return answer

    _builtins._register_builtin(batch_norm, "aten::batch_norm")  # what torch.jit.script takes it for
    patches.set(torch, "batch_norm", batch_norm)


def _takes_cudnn(tensor: Any, rest: tuple[Any, ...]) -> bool:
    """Whether cuDNN takes it (`_select_batch_norm_backend`)."""
    weight, bias, mean, variance, training, _, epsilon, enabled = rest
    return bool(
        tensor.is_cuda
        and weight is not None
        and bias is not None
        and torch.bfloat16 not in (tensor.dtype, weight.dtype)
        and (tensor.dtype is not torch.float16 or weight.dtype is torch.float32)
        and (mean is None) is (variance is None)
        and (training or mean is not None)
        and tensor.dim() >= 3
        and tensor.shape[0] <= (880_801 if training else 65_535)
        and epsilon >= 1e-5
        and enabled
    )
