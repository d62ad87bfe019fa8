"""How CUDA's generic reduction splits its work, and the memory it takes when blocks of threads share an output.

`setReduceConfig` in aten/src/ATen/native/cuda/Reduce.cuh of PyTorch 2.13.
"""

from functools import lru_cache

import msgspec

from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import CardLimits

MAX_THREADS = 512
WARP = 32
FEWEST_VALUES, MOST_VALUES = 16, 256
"""Values a thread sums at least before more threads, and at most before more blocks, take part."""


class Reduction(msgspec.Struct, frozen=True, kw_only=True):
    """One reduction over dimensions that are ordered and merged.

    Attributes:
        along: the reduced dimension is the contiguous one.
        inputs: values that are reduced to each output.
        outputs: how many there are.
        width: threads' work along the contiguous dimension, and `height` across it, in vectors.
        out_vector: outputs that a thread has side by side.
        accumulator: bytes of one partial result.
    """

    along: bool
    inputs: int
    outputs: int
    width: int
    height: int
    out_vector: int = 1
    accumulator: int = 4


class ReductionScratch(msgspec.Struct, frozen=True):
    """What a reduction takes beside its output, in bytes; both 0 when every output is reduced within one block."""

    buffer: int = 0
    semaphores: int = 0

    @property
    def allocated(self) -> int:
        """Both in whole blocks of the allocator."""
        return rounded(self.buffer) + rounded(self.semaphores)


def reduction_scratch(asked: Reduction, card: CardLimits) -> ReductionScratch:
    """Partial results that blocks leave for each other, and the counters that tell which is last."""
    width, height = _block(asked.width, asked.height, asked.out_vector)
    step_in, step_out = (width, 1) if asked.along else (1, width)
    across_warps = _up(asked.inputs, step_in) >= min(height * FEWEST_VALUES, MOST_VALUES)
    if across_warps:
        step_in *= height
    else:
        step_out *= height
    grid = _up(asked.outputs // asked.out_vector, step_out)
    target = card.multiprocessors * (card.threads // (width * height))
    values = _up(asked.inputs, step_in)
    if not across_warps or values < MOST_VALUES or grid > target:
        return ReductionScratch()
    blocks = max(min(_up(target, grid), _up(values, FEWEST_VALUES)), _up(values, MOST_VALUES))
    if blocks <= 1:
        return ReductionScratch()
    each = 1 if asked.along else width * asked.out_vector
    return ReductionScratch(asked.accumulator * asked.outputs * blocks * each, 4 * grid)


@lru_cache(maxsize=4096)
def column_sum_scratch(rows: int, columns: int, card: CardLimits) -> int:
    """Bytes that summing a contiguous (rows, columns) matrix over its rows takes, as for a bias's gradient."""
    vector = 4 if columns % 4 == 0 else 2 if columns % 2 == 0 else 1
    asked = Reduction(
        along=False, inputs=rows, outputs=columns, width=columns // vector, height=rows, out_vector=vector
    )
    return reduction_scratch(asked, card).allocated


def _block(wide: int, high: int, out_vector: int) -> tuple[int, int]:
    most = MAX_THREADS // out_vector
    x, y = ((1 << (max(n, 1).bit_length() - 1)) if n < most else most for n in (wide, high))
    width = min(x, WARP)
    height = min(y, most // width)
    return min(x, most // height), height


def _up(number: int, by: int) -> int:
    return -(-number // by)
