"""Convolutions: the native ones unfold the image into columns; cuDNN's workspaces are measured, or a range."""

from math import prod
from typing import Any

import torch

from vramtui.core.base.units import format_bytes
from vramtui.dryrun.fake.kernels import kernel
from vramtui.dryrun.fake.kernels.copies import form_of
from vramtui.dryrun.fake.kernels.reductions import partial
from vramtui.estimators.torch_facts import convolutions as facts
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.estimators.torch_facts.releases import release_of

# The largest shortfall of reserved against the CUDA build without a device among public nets whose convolutions were
# not measured before they were traced: superminddpm.
CUDNN_SHARE = 0.32
CUDNN_NOTE = (
    "cuDNN chooses its convolution algorithms on the card itself; workspaces of those not measured follow the nearest "
    "that is, or a fitted rule: of 1,500 left out on an H100 78 to 98 % were right within 5 % or 1 MiB"
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
    "kernels that fit; the largest that was measured is counted, and the peaks of two nets were a third and five "
    "sixths too low by it; the bound from above is what the card has free by then, {} at the first"
)
_SPATIAL_3D = 5
_CUDNN_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _workspace(call: Any, out: Any, tensor: torch.Tensor, weight: torch.Tensor, at: facts.Direction) -> None:
    """Take and give back what cuDNN is likely to ask for.

    With `torch.backends.cudnn.benchmark` the first call of each thread times each kernel (cudnn/Conv_v8.cpp, 2.13): the
    largest workspace that fits is taken, the cache is emptied, and the first of cuDNN's own order counts as the
    fastest. Backward has a memory of its own.
    """
    memory, cudnn = call.memory, torch.backends.cudnn
    limits, release = card_limits(memory.device), release_of(torch.__version__)
    convolution = facts.ConvolutionCall(
        shapes=(tuple(tensor.shape), tuple(weight.shape), tuple(out.shape)),
        dtype=str(tensor.dtype).removeprefix("torch."),
        itemsize=tensor.element_size(),
        stride=tuple(call.argument("stride")),
        padding=tuple(call.argument("padding")),
        dilation=tuple(call.argument("dilation")),
        groups=call.argument("groups"),
        transposed=call.argument("transposed"),
        channels_last=_form_of_both(tensor, weight) is not torch.contiguous_format,
    )
    nbytes, is_measured = facts.asked_workspace(convolution, at, limits, release, tf32=cudnn.allow_tf32)
    convolved, plain = convolution.convolved(limits, release), convolution.plain(at)
    deterministic = cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    tf32 = cudnn.allow_tf32 and limits.capability >= facts.AMPERE and convolution.dtype == "float32"
    if not nbytes and deterministic and tf32 and weight.dim() < _SPATIAL_3D and not convolution.channels_last:
        # The usual kernel need not be deterministic (as PyTorch 2.13's CUDA build answers).
        nbytes = facts.deterministic_workspace(convolved, plain)
        is_measured = is_measured and not nbytes
    card = facts.measured_card(limits.capability, limits.multiprocessors)
    if card not in {facts.REAL, None} and not facts.is_without_device():
        memory.warn(MODEL_NOTE)
    if not is_measured:
        memory.warn(CUDNN_NOTE)
        memory.unseen_share = CUDNN_SHARE
    if is_measured is None:
        memory.bounded = True
        most = facts.copies(convolved, ("input", "weight", "output")) + facts.HEADER
        other = "" if card is not None else " on such a card"
        line = memory.user_line() or "a line of a library"
        shown = format_bytes(most), format_bytes(nbytes)
        memory.warn(FAR_NOTE.format(line, other, *shown, RIGHT, IN_RANGE), same=FAR_NOTE)
    tried = convolved, plain, torch._C._current_graph_task_id() != -1
    if cudnn.benchmark and tried not in memory.convolutions_tried:
        memory.convolutions_tried.add(tried)
        tested, room = facts.measured_workspace(convolved, plain, tried=True), memory.allocator.largest_available
        memory.warn(BENCHMARK_NOTE.format(format_bytes(room)), same=BENCHMARK_NOTE)
        memory.bounded = True
        if largest := nbytes if tested is None or tested[0] > room else max(nbytes, tested[0]):
            call.drop(call.scratch(largest))
        memory.allocator.empty_cache()
    if nbytes:
        call.drop(call.scratch(nbytes))


def _form_of_both(tensor: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """The form in which cuDNN works: NHWC if input or weight are in it (ATen/native/ConvUtils.h, 2.13).

    Inputs, weights and gradients of outputs are copied to it (ATen/native/Convolution.cpp and cudnn/ConvShared.cpp).
    """
    form = form_of(tensor)
    return form_of(weight) if form is torch.contiguous_format else form


def _laid_out(value: Any, form: torch.memory_format) -> Any:
    """A result in the order of its operands, as cuDNN writes it (torch/_subclasses/fake_impls.py, 2.13, `conv`)."""
    if form is torch.contiguous_format or not isinstance(value, torch.Tensor) or value.dim() < 4:
        return value
    return torch.ops.aten.empty_like.default(value, memory_format=form)


def _uses_cudnn(tensor: torch.Tensor) -> bool:
    return torch.backends.cudnn.enabled and tensor.dtype in _CUDNN_TYPES


def _depthwise(tensor: torch.Tensor, weight: torch.Tensor, groups: int) -> bool:
    return groups > 1 and tensor.shape[1] == groups and weight.shape[0] % groups == 0


def _columns(weight: torch.Tensor, pixels: torch.Tensor) -> int:
    """Bytes of one image's columns: [channels in a group x kernel, places of `pixels`]."""
    return weight.shape[1] * prod(weight.shape[2:]) * prod(pixels.shape[2:]) * weight.element_size()


def _unfolds(call: Any, weight: torch.Tensor) -> bool:
    ones = (*weight.shape[2:], *call.argument("stride"), *call.argument("dilation"))
    return bool(call.argument("transposed")) or any(one != 1 for one in ones) or any(call.argument("padding"))


@kernel("convolution")
def convolution(call: Any) -> Any:
    tensor, weight = call.args[:2]
    if _uses_cudnn(tensor):
        form = _form_of_both(tensor, weight)
        call.copy(tensor, form=form)
        out = call.take(_laid_out(call.untracked(), form))
        call.copy(weight, form=form)
        _workspace(call, out, tensor, weight, "forward")
        return out
    out = call.run()
    if not _depthwise(tensor, weight, call.argument("groups")):
        if _unfolds(call, weight):
            call.scratch(_columns(weight, tensor if call.argument("transposed") else out))
        call.memory.workspaces.cublas()
    return out


@kernel("convolution_backward")
def convolution_backward(call: Any) -> Any:
    """The result is the gradients of input, weight and bias, as far as they are asked for."""
    grad, tensor, weight = call.args[:3]
    out = call.untracked()
    cudnn, form = _uses_cudnn(tensor), _form_of_both(tensor, weight)
    is_native = not cudnn and not _depthwise(tensor, weight, call.argument("groups"))
    if cudnn:
        call.copy(*([] if out[1] is None else [tensor]), grad, form=form)
        out = tuple(_laid_out(value, form) for value in out)
    elif is_native:
        call.copy(grad)
    columns: list[Any] = []
    directions: tuple[facts.Direction, facts.Direction] = ("input", "weight")
    for value, at in zip(out, directions, strict=False):
        if value is None:
            continue
        call.take(value)
        if cudnn:
            copied = call.copy(weight, form=form) if at == "input" else []
            _workspace(call, grad, tensor, weight, at)
            call.drop(*copied)
        elif is_native:
            if not columns and (at == "input" or _unfolds(call, weight)):
                columns = [call.scratch(_columns(weight, tensor if call.argument("transposed") else grad))]
            call.memory.workspaces.cublas()  # by the products, when their result and the columns are there
    call.drop(*columns)
    if out[2] is not None:
        call.take(out[2])
        if cudnn or is_native:  # a sum over all but the channels, which takes much of channels-last ones
            partial(call, grad, tuple(i for i in range(grad.dim()) if i != 1), out[2])
    return out
