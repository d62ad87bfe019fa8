"""The gradient of an embedding table: sorted indices, their segments, partial sums of at most ten rows.

Follows `embedding_dense_backward_cuda` and `embedding_backward_cuda_kernel`.
"""

from typing import Any

import torch

from vramtui.estimators.torch_facts import cub
from vramtui.estimators.traced.kernels.registry import kernel

_UNSORTED_UP_TO = 3072
_ROWS_PER_PARTIAL = 10
_MOST_THREADS = 1024
_ATOMIC_BLOCKS_PER_SM = 4


@kernel("embedding_dense_backward")
def embedding_backward(call: Any) -> Any:
    """args: grad [..., width], indices, rows of the table, padding index, scale by frequency."""
    grad, indices, rows, _, by_frequency = call.args
    for tensor in (indices, grad):
        if not tensor.is_contiguous():
            call.scratch(tensor.numel() * tensor.element_size())
    count, item = indices.numel(), indices.element_size()
    if count <= _UNSORTED_UP_TO and not by_frequency:
        return call.run()
    scratch = [call.scratch(count * item), call.scratch(count * item)]
    order = call.scratch(count * item)
    bits = max(int(rows).bit_length(), 1)
    temporary = call.scratch(cub.sort_pairs(count, item, item, bits, call.memory.device.capability))
    call.drop(temporary, order)
    if by_frequency:
        scratch.append(call.scratch(count * item))
        call.drop(call.scratch(cub.scan(count)))
        call.drop(call.scratch(cub.scan(count)))
    out = call.run()
    _sum_segments(call, count, item, rows, grad)
    call.drop(*scratch)
    return out


def _sum_segments(call: Any, count: int, item: int, rows: int, grad: torch.Tensor) -> None:
    scratch = [call.scratch(count * item), call.scratch(8)]
    keys = call.scratch(count * item)
    call.drop(call.scratch(cub.scan(count)), keys)
    segments = min(count, rows)
    scratch += [call.scratch(segments * item), call.scratch(segments * item)]
    call.drop(call.scratch(cub.scan(segments)))
    partials = count // _ROWS_PER_PARTIAL + segments
    scratch += [call.scratch(8), call.scratch(partials * item)]
    width = grad.shape[-1]
    lowered = grad.dtype in (torch.float16, torch.bfloat16)
    precise = 4 if lowered else grad.element_size()
    if _adds_atomically(segments, partials, width, call.memory.device.limits.multiprocessors):
        scratch.append(call.scratch(partials * item))
        if lowered:
            scratch.append(call.scratch(rows * width * precise))
    else:
        scratch.append(call.scratch(partials * width * precise))
    call.drop(*reversed(scratch))


def _adds_atomically(segments: int, partials: int, width: int, multiprocessors: int) -> bool:
    """Few but long segments are summed straight into the table."""
    if torch.are_deterministic_algorithms_enabled():
        return False
    threads = -(-width // 32) * 32
    blocks = -(-segments * threads // min(threads, _MOST_THREADS))
    return blocks < multiprocessors * _ATOMIC_BLOCKS_PER_SM and partials > blocks * 4
