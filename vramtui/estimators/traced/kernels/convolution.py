"""Convolutions: the native ones unfold the image into columns; cuDNN's workspaces are measured or fitted."""

from typing import Any

import torch

from vramtui.estimators.torch_facts.convolution_workspaces import (
    FLOAT,
    Direction,
    convolution_workspace,
    convolved_of,
    measured_workspace,
)
from vramtui.estimators.traced.kernels.reductions import accumulator_bytes, partial
from vramtui.estimators.traced.kernels.registry import kernel

_DOUBLE = 8
_MEASURED_ON = 9  # the capability of the H200; on others cuDNN takes other kernels for half of the convolutions
# The largest shortfall measured beside the real CUDA build before any workspace was counted: PyTorch-GAN's acgan.py
# reserves 28 % more. By the thresholds ResNets, VGG, DenseNet, MobileNet and UNets are within 1.4 % of allocated and
# 3.5 % of reserved, but small nets miss most of it. Nets of measured convolutions alone have no such note.
CUDNN_SHARE = 0.3
CUDNN_NOTE = (
    "cuDNN chooses its convolution algorithms on the card itself; workspaces of those not measured follow a fitted "
    "rule: nets of usual size were within 1.4 % of allocated and 3.5 % of reserved, but small ones reserved up to 28 % "
    "more"
)


def _uses_cudnn(tensor: torch.Tensor) -> bool:
    return torch.backends.cudnn.enabled and tensor.dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    )


def _workspace(call: Any, out: Any, shapes: tuple[Any, Any], how: tuple[Any, ...], at: Direction) -> None:
    """Take and give back what cuDNN is likely to ask for.

    Args:
        call: the operator.
        out: its output, or that output's gradient.
        shapes: the input and the weight.
        how: stride, padding, dilation, whether it is transposed, output padding, groups.
        at: which of the three products.
    """
    memory = call.memory
    tensor, weight = shapes
    stride, padding, dilation, transposed, _, groups = how
    plain = set(dilation) == {1}
    form = convolved_of(
        tensor.shape,
        weight.shape,
        out.shape,
        tensor.element_size(),
        groups,
        transposed=transposed,
        stride=stride if plain else (),
        padding=padding if plain else (),
    )
    if transposed and at != "weight":
        at = "input" if at == "forward" else "forward"
    contiguous = not (_channels_last(tensor) or _channels_last(weight))
    measured = None
    if contiguous and memory.device.capability[0] == _MEASURED_ON and _copies_in_tf32(tensor, memory.device):
        measured = measured_workspace(form, at)
    if measured is None or not measured[1]:
        memory.warn(CUDNN_NOTE)
        memory.unseen_share = CUDNN_SHARE
    if not contiguous or tensor.element_size() == _DOUBLE or not _copies_in_tf32(tensor, memory.device):
        return
    nbytes = convolution_workspace(form, at) if measured is None else measured[0]
    if nbytes:
        call.drop(call.scratch(nbytes))


def _copies_in_tf32(tensor: torch.Tensor, device: Any) -> bool:
    """Whether tensor cores take these numbers: halves, or fp32 as TF32."""
    return tensor.element_size() != FLOAT or (_has_tf32(device) and torch.backends.cudnn.allow_tf32)


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
        _workspace(call, out, (tensor, weight), call.args[3:9], "forward")
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
                    _workspace(call, grad, (tensor, weight), call.args[4:10], at)
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
