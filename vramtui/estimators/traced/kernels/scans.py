"""Prefix sums, sorts and selections."""

from typing import Any

import torch

from vramtui.estimators.traced.kernels import cub
from vramtui.estimators.traced.kernels.registry import kernel


@kernel("cumsum", "cumprod")
def cumulative(call: Any) -> Any:
    """The input is first converted to the type of the result; one long row goes through CUB."""
    out = call.run()
    tensor = call.args[0]
    if tensor.dtype is not out.dtype:
        call.scratch(out.numel() * out.element_size())
    if tensor.dim() and tensor.numel() == tensor.shape[call.args[1]] and tensor.numel():
        call.scratch(cub.scan(tensor.numel()))
    return out


@kernel("sort", "sort.stable")
def sort(call: Any) -> Any:
    """Rows of up to 4096 are sorted in place, others through CUB with their indices."""
    out = call.run()
    tensor = call.args[0]
    if tensor.numel() and tensor.dim():
        named = call.kwargs.get("dim", -1)
        dim = named if call.func is torch.ops.aten.sort.stable else (call.args[1] if len(call.args) > 1 else -1)
        if tensor.shape[dim] > 4096:
            call.scratch(tensor.numel() * 8)
            bits = 8 * tensor.element_size()
            capability = call.memory.device.capability
            call.scratch(cub.sort_pairs(tensor.numel(), tensor.element_size(), 8, bits, capability))
    return out
