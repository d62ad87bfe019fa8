"""Convolutions: the native ones unfold the image into columns; cuDNN's workspaces are measured, or a range."""

from math import prod
from typing import Any

import torch

from vramtui.core.base.units import format_bytes
from vramtui.dryrun.fake.kernels import kernel
from vramtui.dryrun.fake.kernels.copies import form_of
from vramtui.dryrun.fake.kernels.reductions import accumulator_bytes, partial
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.estimators.torch_facts.convolutions import (
    AMPERE,
    HEADER,
    REAL,
    ConvolutionCall,
    Direction,
    asked_workspace,
    copies,
    deterministic_workspace,
    is_without_device,
    measured_card,
    tried_workspace,
)
from vramtui.estimators.torch_facts.releases import release_of

# The largest shortfall of reserved against the CUDA build without a device among public nets whose convolutions were
# not measured before they were traced: superminddpm.
CUDNN_SHARE = 0.32
CUDNN_NOTE = (
    "cuDNN chooses its convolution algorithms on the card itself; workspaces of those not measured follow the nearest "
    "that is, or a fitted rule: of 1,500 convolutions of usual nets left out on an H100 89 to 98 % of the workspaces "
    "forward and of the input's gradient were right within 5 % or 1 MiB, and 78 to 87 % of the weight's"
)
MODEL_NOTE = (
    "no such card was at hand: workspaces of convolutions are those that cuDNN asks for without a device where this "
    "card is described to it; an H100 asked for another in one case of five, seldom by gigabytes more"
)
# Of 3,000 random convolutions that no rule was fitted to, as an H100 ran them
# (tests/golden/card/convolutions_left_out.json.gz), the three products of each that has no measured one near it.
FAR_NOTE = (
    "bounded: no convolution near that at {} was measured{}: its workspace is between 0 B and {}, and {} are counted; "
    "of 3,000 that no rule had seen {:.0%} were right within 5 % or 1 MiB, and {:.0%} in such a range"
)
RIGHT, IN_RANGE = 0.76, 0.90
# PyTorch, aten/src/ATen/native/cudnn/Conv_v8.cpp, generate_and_filter_plans and run_single_conv: kernels that ask for
# more than the device's free memory or the largest cached block are left out; nothing else limits them.
BENCHMARK_NOTE = (
    "torch.backends.cudnn.benchmark: bounded, from below: the first call of each convolution tries all of cuDNN's "
    "kernels, takes what the largest asks for, and empties the allocator's cache; the largest that was measured is "
    "counted, and the peaks of two nets were a third and five sixths too low by it; the bound from above is what the "
    "card has free by then, {} at the first: kernels that ask for more are not tried; which is fastest only the card "
    "tells, and the first of cuDNN's own order is counted"
)
_SPATIAL_3D = 5
_CUDNN_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _workspace(call: Any, out: Any, shapes: tuple[Any, Any], how: tuple[Any, ...], at: Direction) -> None:
    """Take and give back what cuDNN is likely to ask for."""
    memory = call.memory
    tensor, weight = shapes
    stride, padding, dilation, transposed, _, groups = how
    limits, release = card_limits(memory.device), release_of(torch.__version__)
    convolution = ConvolutionCall(
        shapes=(tuple(tensor.shape), tuple(weight.shape), tuple(out.shape)),
        dtype=str(tensor.dtype).removeprefix("torch."),
        itemsize=tensor.element_size(),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
        transposed=transposed,
        channels_last=_form_of_both(tensor, weight) is not torch.contiguous_format,
    )
    nbytes, is_measured = asked_workspace(convolution, at, limits, release, tf32=torch.backends.cudnn.allow_tf32)
    convolved, plain = convolution.convolved(limits, release), convolution.plain(at)
    deterministic = torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    tf32 = torch.backends.cudnn.allow_tf32 and limits.capability >= AMPERE and convolution.dtype == "float32"
    if not nbytes and deterministic and tf32 and weight.dim() < _SPATIAL_3D and not convolution.channels_last:
        # The usual kernel need not be deterministic (as PyTorch 2.13's CUDA build answers).
        nbytes = deterministic_workspace(convolved, plain)
        is_measured = is_measured and not nbytes
    card = measured_card(limits.capability, limits.multiprocessors)
    if card not in {REAL, None} and not is_without_device():
        memory.warn(MODEL_NOTE)
    if not is_measured:
        memory.warn(CUDNN_NOTE)
        memory.unseen_share = CUDNN_SHARE
    if is_measured is None:
        memory.bounded = True
        most = copies(convolved, ("input", "weight", "output")) + HEADER
        other = "" if card is not None else " on such a card"
        line = memory.user_line() or "a line of a library"
        shown, largest = format_bytes(nbytes), format_bytes(most)
        memory.warn(FAR_NOTE.format(line, other, largest, shown, RIGHT, IN_RANGE), same=FAR_NOTE)
    if torch.backends.cudnn.benchmark:
        _try_all(call, convolved, plain, nbytes)
    if nbytes:
        call.drop(call.scratch(nbytes))


def _try_all(call: Any, convolved: Any, at: Direction, asked: int) -> None:
    """Time each kernel at the first call as `torch.backends.cudnn.benchmark` does (cudnn/Conv_v8.cpp, 2.13).

    The largest workspace that fits is taken, and the cache is emptied; the first of cuDNN's own order counts
    as the fastest. Each thread remembers what it tried, and backward has a memory of its own.
    """
    memory = call.memory
    tried = convolved, at, torch._C._current_graph_task_id() != -1
    if tried in memory.convolutions_tried:
        return
    memory.convolutions_tried.add(tried)
    measured, room = tried_workspace(convolved, at), memory.allocator.largest_available
    note = BENCHMARK_NOTE.format(format_bytes(room))
    memory.warn(note, same=BENCHMARK_NOTE)
    memory.bounded = True
    nbytes = asked if measured is None or measured[0] > room else max(asked, measured[0])
    if nbytes:
        call.drop(call.scratch(nbytes))
    memory.allocator.empty_cache()


def _form_of_both(tensor: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """The form in which cuDNN works: NHWC if input or weight are in it (ATen/native/ConvUtils.h, 2.13).

    Inputs, weights and gradients of outputs are copied to it (ATen/native/Convolution.cpp and cudnn/ConvShared.cpp).
    """
    return next(
        (f for f in map(form_of, (tensor, weight)) if f is not torch.contiguous_format), torch.contiguous_format
    )


def _laid_out(value: Any, form: torch.memory_format) -> Any:
    """A result in the order of its operands, as cuDNN writes it (torch/_subclasses/fake_impls.py, 2.13, `conv`)."""
    if form is torch.contiguous_format or not isinstance(value, torch.Tensor) or value.dim() < 4:
        return value
    return torch.ops.aten.empty_like.default(value, memory_format=form)


def _sum_bias(call: Any, grad: torch.Tensor, out: torch.Tensor) -> None:
    """The gradient of a bias: a sum over all but the channels, which takes much of channels-last ones."""
    others = tuple(i for i in range(grad.dim()) if i != 1)
    partial(call, grad, others, out, accumulator=accumulator_bytes(grad.dtype))


def _uses_cudnn(tensor: torch.Tensor) -> bool:
    return torch.backends.cudnn.enabled and tensor.dtype in _CUDNN_TYPES


def _depthwise(tensor: torch.Tensor, weight: torch.Tensor, groups: int) -> bool:
    return groups > 1 and tensor.shape[1] == groups and weight.shape[0] % groups == 0


def _columns(weight: torch.Tensor, pixels: torch.Size, item: int) -> int:
    """Bytes of one image's columns: [channels in a group x kernel, pixels]; `pixels` is the spatial shape."""
    return weight.shape[1] * prod(weight.shape[2:]) * prod(pixels) * item


def _unfolds(weight: torch.Tensor, stride: Any, padding: Any, dilation: Any, transposed: Any) -> bool:
    ones = (*weight.shape[2:], *stride, *dilation)
    return bool(transposed) or any(one != 1 for one in ones) or any(p != 0 for p in padding)


@kernel("convolution")
def convolution(call: Any) -> Any:
    """args: input, weight, bias, stride, padding, dilation, transposed, output padding, groups."""
    tensor, weight, _, *how, _, groups = call.args
    if _uses_cudnn(tensor):
        form = _form_of_both(tensor, weight)
        call.copy(tensor, form=form)
        out = call.take(_laid_out(call.untracked(), form))
        call.copy(weight, form=form)
        _workspace(call, out, (tensor, weight), call.args[3:9], "forward")
        return out
    out = call.run()
    if _depthwise(tensor, weight, groups):
        return out
    columns: list[Any] = []
    if _unfolds(weight, *how):
        spatial = tensor.shape[2:] if how[-1] else out.shape[2:]
        columns = [call.scratch(_columns(weight, spatial, tensor.element_size()))]
    call.memory.device.workspaces.cublas()
    call.drop(*columns)
    return out


@kernel("convolution_backward")
def convolution_backward(call: Any) -> Any:
    """args: grad, input, weight, bias sizes, stride, padding, dilation, transposed, output padding, groups, mask."""
    grad, tensor, weight, _, *how, _, groups, _mask = call.args
    out = call.untracked()
    cudnn = _uses_cudnn(tensor)
    if cudnn or _depthwise(tensor, weight, groups):
        form = _form_of_both(tensor, weight)
        if cudnn:
            call.copy(*([] if out[1] is None else [tensor]), grad, form=form)
            out = tuple(_laid_out(value, form) for value in out)
        directions: tuple[Direction, Direction] = ("input", "weight")
        for value, at in zip(out, directions, strict=False):
            if value is not None:
                call.take(value)
                if cudnn:
                    copied = call.copy(weight, form=form) if at == "input" else []
                    _workspace(call, grad, (tensor, weight), call.args[4:10], at)
                    call.drop(*copied)
        if out[2] is not None:
            call.take(out[2])
            if cudnn:
                _sum_bias(call, grad, out[2])
        return out
    call.copy(grad)
    nbytes = _columns(weight, (tensor if how[-1] else grad).shape[2:], tensor.element_size())
    columns: list[Any] = []
    cublas = call.memory.device.workspaces.cublas  # by the products, when their result and the columns are there
    if out[0] is not None:
        call.take(out[0])
        columns = [call.scratch(nbytes)]
        cublas()
    if out[1] is not None:
        call.take(out[1])
        if not columns and _unfolds(weight, *how):
            columns = [call.scratch(nbytes)]
        cublas()
    call.drop(*columns)
    if out[2] is not None:
        call.take(out[2])
        _sum_bias(call, grad, out[2])
    return out
