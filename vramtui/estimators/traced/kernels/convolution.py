"""Convolutions: the native ones unfold the image into columns; what cuDNN asks for follows a fitted rule."""

from typing import Any

import torch

from vramtui.estimators.torch_facts.convolution_workspaces import (
    FLOAT,
    Direction,
    convolution_workspace,
    convolved_of,
)
from vramtui.estimators.traced.kernels.reductions import accumulator_bytes, partial
from vramtui.estimators.traced.kernels.registry import kernel

_DOUBLE = 8
# The largest shortfall measured beside the real CUDA build before any workspace was counted: PyTorch-GAN's acgan.py
# reserves 28 % more. With the rule, ResNets, VGG, DenseNet, MobileNet and UNets are within 1.4 % of allocated and 3.5 %
# of reserved, but small nets still miss most of it.
CUDNN_SHARE = 0.3
CUDNN_NOTE = (
    "cuDNN chooses its convolution algorithms on the card itself; workspaces follow a fitted rule: nets of usual size "
    "were within 1.4 % of allocated and 3.5 % of reserved, but small ones reserved up to 28 % more"
)


def _uses_cudnn(tensor: torch.Tensor) -> bool:
    return torch.backends.cudnn.enabled and tensor.dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    )


def _workspace(call: Any, out: Any, shapes: tuple[Any, Any], groups: int, *, transposed: bool, at: Direction) -> None:
    """Take and give back what cuDNN is likely to ask for; `shapes` are of the input and the weight."""
    memory = call.memory
    memory.warn(CUDNN_NOTE)
    memory.unseen_share = CUDNN_SHARE
    tensor, weight = shapes
    if _channels_last(tensor) or _channels_last(weight) or tensor.element_size() == _DOUBLE:
        return
    if tensor.element_size() == FLOAT and not (_has_tf32(memory.device) and torch.backends.cudnn.allow_tf32):
        return
    form = convolved_of(tensor.shape, weight.shape, out.shape, tensor.element_size(), groups, transposed=transposed)
    if transposed and at != "weight":
        at = "input" if at == "forward" else "forward"
    nbytes = convolution_workspace(form, at)
    if nbytes:
        call.drop(call.scratch(nbytes))


def _has_tf32(device: Any) -> bool:
    return tuple(device.capability) >= (8, 0)


def _channels_last(tensor: torch.Tensor) -> bool:
    return not tensor.is_contiguous() and any(
        tensor.dim() == dims and tensor.is_contiguous(memory_format=form)
        for dims, form in ((4, torch.channels_last), (5, torch.channels_last_3d))
    )


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
        _workspace(call, out, (tensor, weight), groups, transposed=transposed, at="forward")
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
        directions: tuple[Direction | None, ...] = ("input", "weight", None)
        for value, at in zip(out, directions, strict=True):
            if isinstance(value, torch.Tensor):
                call.take(value)
                if at and _uses_cudnn(tensor):
                    _workspace(call, grad, (tensor, weight), groups, transposed=transposed, at=at)
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
