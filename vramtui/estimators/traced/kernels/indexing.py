"""Gathering and scattering by index tensors."""

from typing import Any

import torch

from vramtui.estimators.traced.kernels import cub
from vramtui.estimators.traced.kernels.registry import kernel

_INDEX = 8


@kernel("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
def index_put(call: Any) -> Any:
    """args: target, indices, values, accumulate; adding up sorts the indices first (`index_put_with_sort_kernel`)."""
    target, indices, values = call.args[:3]
    accumulate = call.args[3] if len(call.args) > 3 else call.kwargs.get("accumulate", False)
    out = call.run()
    given = [index for index in indices if isinstance(index, torch.Tensor)]
    if not accumulate or not given or given[0].dtype is torch.bool:
        return out
    count = torch.broadcast_shapes(*(index.shape for index in given)).numel()
    if not count:
        return out
    linear = call.scratch(count * _INDEX)
    if not values.is_contiguous():
        call.scratch(values.numel() * values.element_size())
    held = [call.scratch(count * _INDEX), call.scratch(count * _INDEX)]
    order = call.scratch(count * _INDEX)
    bits = max(int(target.numel()).bit_length(), 1)
    call.drop(call.scratch(cub.sort_pairs(count, _INDEX, _INDEX, bits, call.memory.device.capability)), order)
    call.drop(*held, linear)
    return out


@kernel("multinomial")
def multinomial(call: Any) -> Any:
    """One draw, or draws without putting back: the largest of probabilities over exponential noise."""
    tensor, count = call.args[:2]
    again = call.args[2] if len(call.args) > 2 else call.kwargs.get("replacement", False)
    if not again or count == 1:
        call.scratch(tensor.numel() * tensor.element_size())
    return call.run()
