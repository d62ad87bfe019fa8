"""Softmax and its kin, and fused dropout: what happens to scores."""

from typing import Any

import torch

from vramtui.estimators.traced.kernels.registry import kernel


@kernel("native_dropout")
def dropout(call: Any) -> Any:
    """The mask of bytes comes first (`dropout_cuda`)."""
    out, mask = call.untracked()
    call.take(mask)
    call.take(out)
    return out, mask


@kernel("_softmax_backward_data")
def softmax_backward(call: Any) -> Any:
    """The kernel is handed grad * output (`softmax_backward_cuda_out`)."""
    out = call.run()
    grad, output = call.args[:2]
    call.scratch(grad.numel() * torch.promote_types(grad.dtype, output.dtype).itemsize)
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
    tensor = call.args[0]
    if not tensor.is_contiguous():
        call.scratch(tensor.numel() * tensor.element_size())
    return call.run()
