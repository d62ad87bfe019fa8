"""Convolutions: the native ones unfold the image into columns; what cuDNN asks for is its own secret."""

from typing import Any

import torch

from vramtui.estimators.traced.kernels.reductions import accumulator_bytes, partial
from vramtui.estimators.traced.kernels.registry import kernel

# The largest shortfall measured beside the real CUDA build: PyTorch-GAN's acgan.py reserves 28 % more than traced.
CUDNN_SHARE = 0.3
CUDNN_NOTE = (
    "cuDNN chooses its convolution algorithms on the card itself, so their workspaces are not in these figures: "
    "allocated was up to 20 % higher on the runs measured, reserved up to 28 %"
)


def _uses_cudnn(tensor: torch.Tensor) -> bool:
    return torch.backends.cudnn.enabled and tensor.dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    )


def _leave_out_workspace(memory: Any) -> None:
    memory.warn(CUDNN_NOTE)
    memory.unseen_share = CUDNN_SHARE


def _depthwise(tensor: torch.Tensor, weight: torch.Tensor, groups: int) -> bool:
    return groups > 1 and tensor.shape[1] == groups and weight.shape[0] % groups == 0


def _product(numbers: Any) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def _columns(weight: torch.Tensor, pixels: torch.Size, item: int) -> int:
    """Bytes of one image's columns: [channels in a group x kernel, pixels]; `pixels` is the spatial shape."""
    return weight.shape[1] * _product(weight.shape[2:]) * _product(pixels) * item


def _unfolds(weight: torch.Tensor, stride: Any, padding: Any) -> bool:
    return any(k != 1 for k in weight.shape[2:]) or any(s != 1 for s in stride) or any(p != 0 for p in padding)


@kernel("convolution")
def convolution(call: Any) -> Any:
    """args: input, weight, bias, stride, padding, dilation, transposed, output padding, groups."""
    tensor, weight, _, stride, padding, dilation, transposed, _, groups = call.args
    out = call.run()
    if _uses_cudnn(tensor):
        _leave_out_workspace(call.memory)
        return out
    if _depthwise(tensor, weight, groups):
        return out
    columns: list[Any] = []
    if transposed or any(d != 1 for d in dilation) or _unfolds(weight, stride, padding):
        spatial = tensor.shape[2:] if transposed else out.shape[2:]
        columns = [call.scratch(_columns(weight, spatial, tensor.element_size()))]
    call.memory.device.workspaces.cublas()
    call.drop(*columns)
    return out


@kernel("convolution_backward")
def convolution_backward(call: Any) -> Any:
    """args: grad, input, weight, bias sizes, stride, padding, dilation, transposed, output padding, groups, mask."""
    grad, tensor, weight, _, stride, padding, dilation, transposed, _, groups, _mask = call.args
    out = call.untracked()
    if _uses_cudnn(tensor) or _depthwise(tensor, weight, groups):
        if _uses_cudnn(tensor):
            _leave_out_workspace(call.memory)
        for value in out:
            if isinstance(value, torch.Tensor):
                call.take(value)
        return out
    if not grad.is_contiguous():
        call.scratch(grad.numel() * grad.element_size())
    spatial = tensor.shape[2:] if transposed else grad.shape[2:]
    nbytes = _columns(weight, spatial, tensor.element_size())
    columns: list[Any] = []
    call.memory.device.workspaces.cublas()
    if out[0] is not None:
        call.take(out[0])
        columns = [call.scratch(nbytes)]
    if out[1] is not None:
        call.take(out[1])
        if not columns and (transposed or any(d != 1 for d in dilation) or _unfolds(weight, stride, padding)):
            columns = [call.scratch(nbytes)]
    call.drop(*columns)
    if out[2] is not None:
        call.take(out[2])
        others = tuple(i for i in range(grad.dim()) if i != 1)
        partial(call, grad, others, out[2], accumulator=accumulator_bytes(grad.dtype))
    return out
