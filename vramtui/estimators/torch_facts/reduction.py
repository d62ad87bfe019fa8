"""Scratch memory of reductions and of CUB's sorts and scans."""

from functools import lru_cache

import msgspec

from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import CardLimits

# What one block of a radix sort takes, by the bytes of a key and of a value, from a capability on; asked of PyTorch
# 2.13 without a device, over a million pairs. Before 9.0 keys of one and two bytes are sorted in another way, which is
# not followed.
_SORT_TILES = {
    (9, 0): {(1, 8): 3456, (2, 8): 5632, (4, 4): 6528, (4, 8): 5376, (8, 0): 5760, (8, 8): 4608},
    (8, 0): {(4, 4): 6528, (4, 8): 3072, (8, 8): 3840},
    (0, 0): {(4, 4): 11776, (4, 8): 2816, (8, 8): 2816},
}
_ONE_TILE = {4: 4864, 8: 2304}  # pairs that one block sorts without any storage, by the larger of key and value
_DIGITS = 256
_PIECE = 256
_STATE_PADDING = 32
_SCAN_TILE = 2048


def pieces(*sizes: int) -> int:
    """Bytes asked for to hold pieces of `sizes` bytes."""
    return sum(-(-size // _PIECE) * _PIECE for size in sizes) + _PIECE - 1


def sort_pairs(count: int, key: int, value: int, bits: int, capability: tuple[int, int]) -> int:
    """Radix sort of pairs in one sweep per 8 of the `bits` compared; `key` and `value` are bytes, 0 for only keys."""
    if count <= _ONE_TILE[max(4, key, value)]:
        return 1
    passes = -(-bits // 8)
    tiles = next(known for since, known in _SORT_TILES.items() if capability >= since)
    blocks = -(-count // (tiles.get((key, value)) or tiles[max(4, key), value or key]))
    double = (count * key, count * value) if passes > 1 else ()
    return pieces(passes * _DIGITS * 8, blocks * _DIGITS * 4, *double, passes * 4)


def scan(count: int) -> int:
    """A prefix sum, or a selection that runs on one, over 8-byte values."""
    return pieces((-(-count // _SCAN_TILE) + _STATE_PADDING) * 16, 1)


MAX_THREADS = 512
WARP = 32
FEWEST_VALUES, MOST_VALUES = 16, 256
"""Values a thread sums at least before more threads, and at most before more blocks, take part."""


class Reduction(msgspec.Struct, frozen=True, kw_only=True):
    """One reduction over dimensions that are ordered and merged."""

    along: bool  # the reduced dimension is the contiguous one
    inputs: int  # values that are reduced to each output
    outputs: int
    width: int  # threads' work along the contiguous dimension, and `height` across it, in vectors
    height: int
    out_vector: int = 1  # outputs that a thread has side by side
    accumulator: int = 4  # bytes of one partial result


class ReductionScratch(msgspec.Struct, frozen=True):
    """Scratch bytes of a reduction; both 0 when every output is reduced within one block."""

    buffer: int = 0
    semaphores: int = 0

    @property
    def allocated(self) -> int:
        """Both in whole blocks of the allocator."""
        return rounded(self.buffer) + rounded(self.semaphores)


def reduction_scratch(asked: Reduction, card: CardLimits) -> ReductionScratch:
    """Partial results that blocks leave for each other, and the counters that tell which is last."""
    most = MAX_THREADS // asked.out_vector
    x, y = ((1 << (max(n, 1).bit_length() - 1)) if n < most else most for n in (asked.width, asked.height))
    height = min(y, most // min(x, WARP))
    width = min(x, most // height)
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


def _up(number: int, by: int) -> int:
    return -(-number // by)
