"""Losses: what they make whole before they take its mean, and which keep that while the result lives. Softmax."""

from math import prod
from typing import Any

import torch

from vramtui.estimators.traced.kernels.reductions import accumulator_bytes, partial
from vramtui.estimators.traced.kernels.registry import kernel


@kernel("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "glu_backward")
def in_one_piece(call: Any) -> Any:
    """The gradient of a channels-last input is none (ATen/native/Loss.cpp and GatedLinearUnit.cpp)."""
    out = call.untracked()
    return call.take(out if out.is_contiguous() else torch.ops.aten.new_empty.default(out, out.shape))


@kernel("native_dropout")
def dropout(call: Any) -> Any:
    """The mask of bytes comes first (`dropout_cuda`)."""
    out, mask = call.untracked()
    call.take(mask)
    call.take(out)
    return out, mask


@kernel("_softmax_backward_data")
def softmax_backward(call: Any) -> Any:
    """The kernel is handed grad * output in one piece (`softmax_backward_cuda_out`, `host_softmax_backward`)."""
    out = call.run()
    grad, output = call.args[:2]
    nbytes = grad.numel() * torch.promote_types(grad.dtype, output.dtype).itemsize
    call.scratch(nbytes)
    if not grad.is_contiguous() and not torch.ops.aten.mul.Tensor(grad, output).is_contiguous():
        call.scratch(nbytes)
    return out


@kernel("_log_softmax_backward_data")
def log_softmax_backward(call: Any) -> Any:
    """Both inputs are read in one piece (`host_softmax_backward`)."""
    out = call.run()
    for tensor in call.args[:2]:
        if not tensor.is_contiguous():
            call.scratch(tensor.numel() * tensor.element_size())
    return out


@kernel("_safe_softmax")
def safe_softmax(call: Any) -> Any:
    """Rows that are masked throughout come out as zeros: what is masked, which rows are, and a zero."""
    tensor, dim = call.args[:2]
    out = call.run()
    call.scratch(tensor.numel())
    call.scratch(tensor.numel() // max(tensor.shape[dim], 1))
    call.scratch(tensor.element_size())
    return out


@kernel("_softmax", "_log_softmax")
def softmax(call: Any) -> Any:
    """The input is read in one piece (`host_softmax`)."""
    tensor, out = call.args[0], call.run()
    if not tensor.is_contiguous():
        call.scratch(tensor.numel() * tensor.element_size())
    return out


_NUMBER = 8  # bytes enough for a scalar of any type; a block is 512


def _reduced(call: Any) -> bool:
    name = call.func.overloadpacket.__name__
    position = {"binary_cross_entropy": 3, "binary_cross_entropy_with_logits": 4}.get(name, 2)
    given = call.args[position] if len(call.args) > position else call.kwargs.get("reduction", 1)
    return bool(given)


def _whole(call: Any, out: torch.Tensor) -> int:
    shape = torch.broadcast_shapes(call.args[0].shape, call.args[1].shape)
    elements: int = prod(shape)
    return elements * out.element_size()


@kernel("mse_loss", "smooth_l1_loss")
def shrunk(call: Any) -> Any:
    """The result is made whole and resized to a number (TORCH_META_FUNC(mse_loss), ATen/native/Loss.cpp).

    The kernel writes the unreduced loss into a second tensor, whose mean it takes.
    """
    out = call.untracked()
    if not _reduced(call):
        return call.take(out)
    whole = _whole(call, out)
    out.untyped_storage().resize_(whole)
    call.take(out)
    call.scratch(whole)
    partial(call, call.args[0], None, out, accumulator=accumulator_bytes(out.dtype))
    return out


@kernel("binary_cross_entropy", "soft_margin_loss")
def copied_back(call: Any) -> Any:
    """The unreduced loss itself is resized, and the mean copied into it (ATen/native/cuda/Loss.cu, native/Loss.cpp)."""
    out = call.untracked()
    if not _reduced(call):
        return call.take(out)
    out.untyped_storage().resize_(_whole(call, out))
    call.take(out)
    call.scratch(_NUMBER)
    partial(call, call.args[0], None, out, accumulator=accumulator_bytes(out.dtype))
    return out


@kernel("huber_loss")
def huber(call: Any) -> Any:
    """The unreduced loss is a tensor of its own until its mean is taken (ATen/native/Loss.cpp, huber_loss)."""
    out = call.untracked()
    return _mean_of_whole(call, out) if _reduced(call) else call.take(out)


@kernel("binary_cross_entropy_with_logits")
def with_logits(call: Any) -> Any:
    """args: input, target, weight, pos_weight, reduction; the logarithm of the sigmoid stands beside the loss, and the
    target's weights beside it while it is weighted (ATen/native/Loss.cpp, binary_cross_entropy_with_logits).
    """
    out = call.untracked()
    whole = _whole(call, out)
    call.scratch(whole)
    weights = call.args[3] if len(call.args) > 3 else call.kwargs.get("pos_weight")
    if weights is not None:
        less_one, of_target = call.scratch(weights.nbytes), call.scratch(whole)
        call.drop(less_one, of_target)
    return _mean_of_whole(call, out) if _reduced(call) else call.take(out)


def _mean_of_whole(call: Any, out: torch.Tensor) -> torch.Tensor:
    """`out`, the mean or sum of an unreduced loss that goes when it is taken."""
    call.scratch(_whole(call, out))
    call.take(out)
    partial(call, call.args[0], None, out, accumulator=accumulator_bytes(out.dtype))
    return out


@kernel("soft_margin_loss_backward")
def soft_margin_backward(call: Any) -> Any:
    """args: grad, input, target, reduction; exp(-target * input) is made in three tensors, and then the gradient
    beside the last of them (ATen/native/Loss.cpp, soft_margin_loss_backward_out).
    """
    whole = _whole(call, call.args[1])
    negated, product, _exponent = (call.scratch(whole) for _ in range(3))
    call.drop(negated, product)
    return call.run()
