"""Fused attention: what each kernel saves for backward, and what it takes besides.

Tensors are [batch, heads, length, head dim] throughout.
"""

from typing import Any

import torch

from vramtui.dryrun.fake.kernels import after, kernel
from vramtui.estimators.torch_facts.releases import release_of
from vramtui.estimators.torch_facts.sdpa_backend import SHARED_HEADS_SINCE, EfficientKernel, efficient_staging_bytes

_CUDNN_WORKSPACE = 256  # what cuDNN 9.20 asks for in forward, whatever the shape
_RANDOM_STATE = 16  # two 64-bit numbers
_CUDNN_SUMS_WANTED = 4  # its place among the arguments of cuDNN's kernel
_SHARED_HEADS = release_of(torch.__version__) >= SHARED_HEADS_SINCE
_HALF = (torch.float16, torch.bfloat16)
_FORWARD_DROPOUT = 5  # its place among the arguments of the memory-efficient kernel
_DROPOUT = 9  # its place among the arguments of the memory-efficient kernel's backward
_FLOAT = 4


def _up(number: int, to: int) -> int:
    return -(-number // to) * to


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


@kernel("_scaled_dot_product_cudnn_attention")
def cudnn_forward(call: Any) -> Any:
    """The seed and offset come first (`run_cudnn_SDP_fprop`); sums of exponentials only if they are asked for."""
    out = call.untracked()
    sums_wanted = call.args[_CUDNN_SUMS_WANTED]
    for tensor in sorted(_tensors(out), key=lambda tensor: tensor.numel() > 1):
        if tensor is not out[1] or sums_wanted:
            call.take(tensor)
    call.scratch(_CUDNN_WORKSPACE)
    return out


@after("_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(call: Any, _out: Any) -> None:
    """The sum of dQ is kept in float, and one float per query with it; heads that share keys get their own dK, dV."""
    query, key, value = call.args[1:4]
    batch, heads, length, width = query.shape
    workspace = batch * heads * length * (width + 1) * _FLOAT + _CUDNN_WORKSPACE
    if key.shape[1] != heads:
        workspace += (key.nbytes // key.shape[1] + value.nbytes // value.shape[1]) * heads
    call.scratch(workspace)


@kernel("_scaled_dot_product_efficient_attention")
def efficient_forward(call: Any) -> Any:
    """The seed and offset it returns live on the host, or are empty ones on the card."""
    out = call.untracked()
    if _SHARED_HEADS and not any(call.args[_FORWARD_DROPOUT : _FORWARD_DROPOUT + 1]):  # left out where it is none
        out = (*out[:2], *(out[0].new_empty((), dtype=torch.int64) for _ in out[2:]))
        call.take(out)
    else:
        call.take(out[:2])
    query, value = call.args[0], call.args[2]
    if query.dtype in _HALF and max(query.shape[-1], value.shape[-1]) > 128:
        call.scratch(out[0].numel() * _FLOAT)
    return out


@after("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(call: Any, _out: Any) -> None:
    """Row sums of grad * output, before the kernel for float; then a staging area, and sums of shared heads."""
    grad, query, key, value = call.args[:4]
    batch, heads, length, width = query.shape
    delta_bytes = batch * heads * length * _FLOAT
    if key.shape[1] != heads:
        for shared in (key, value):
            call.scratch(shared.nbytes // shared.shape[1] * heads)
    if query.dtype in _HALF:
        delta = call.scratch(delta_bytes)
    else:
        product = call.scratch(grad.numel() * _FLOAT)
        sums = call.scratch(delta_bytes)
        delta = call.scratch(delta_bytes)
        call.drop(sums, product)
    how = EfficientKernel(query.dtype in _HALF, call.memory.device.capability, bool(call.args[_DROPOUT]))
    widths = width, value.shape[-1]
    workspace = call.scratch(efficient_staging_bytes(batch * heads, length, key.shape[-2], widths, how))
    call.drop(delta, workspace)


@after("_scaled_dot_product_flash_attention")
def flash_forward(call: Any, _out: Any) -> None:
    """Few queries over many keys are split among blocks, whose partial outputs are kept in float."""
    query, key = call.args[:2]
    dropout = call.args[3] if len(call.args) > 3 else call.kwargs.get("dropout_p", 0.0)
    splits = 1 if dropout else _splits(query, key, call.memory.device.limits.multiprocessors)
    if splits > 1:
        batch, heads, length, width = query.shape
        rows = splits * batch * heads * length
        call.scratch(rows * _FLOAT)
        call.scratch(rows * _rounded(width) * _FLOAT)
    if dropout:
        call.scratch(_RANDOM_STATE)


def _rounded(width: int) -> int:
    return _up(width, 32) if width <= 128 or width == 160 else _up(width, 64)


def _splits(query: torch.Tensor, key: torch.Tensor, multiprocessors: int) -> int:
    """`num_splits_heuristic`: the fewest splits that come within 85 % of the best use of the card."""
    batch, heads, length, width = query.shape
    block = 256 if width <= 64 else 128 if width <= 128 else 64
    key_blocks = -(-key.shape[-2] // block)
    work = batch * heads * -(-length // 64)
    slots = 2 * multiprocessors
    if work >= 0.8 * slots:
        return 1
    efficiency: dict[int, float] = {}
    for splits in range(1, min(128, slots, key_blocks) + 1):
        if splits == 1 or -(-key_blocks // splits) != -(-key_blocks // (splits - 1)):
            waves = work * splits / slots
            efficiency[splits] = waves / -(-work * splits // slots)
    best = max(efficiency.values())
    return next(splits for splits, value in efficiency.items() if value >= 0.85 * best)


@kernel("_scaled_dot_product_flash_attention_backward")
def flash_backward(call: Any) -> Any:
    """Over keys, dQ is summed in float; grouped heads get their dK and dV apart before they are summed."""
    grad, query, key, value, output = call.args[:5]
    for tensor in (grad, output):
        if not tensor.transpose(1, 2).is_contiguous():
            call.scratch(tensor.nbytes)
    out = call.run()
    batch, heads, length, width = query.shape
    rows = batch * heads * _up(length, 128)
    call.scratch(rows * _FLOAT)
    call.scratch(rows * _rounded(width) * _FLOAT)
    if key.shape[1] != heads:
        for tensor in (key, value):
            call.scratch(tensor.nbytes // tensor.shape[1] * heads)
    return out
