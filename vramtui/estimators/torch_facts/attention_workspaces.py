"""What the backward passes of torch's fused attention kernels take beside the gradients.

Letters: b batch, n heads, s queries, t keys, d width of a head of queries and keys, e width of a head of values.
"""

from typing import NamedTuple

from vramtui.estimators.torch_facts.allocator_sizes import rounded

FLOAT = 4
# Of these the shared memory is too small for blocks of 128 x 128 (kernels/cutlassB.h, by capability).
_SMALL_SHARED_MEMORY = frozenset({(7, 5), (8, 6), (8, 9)})
_KEY_BLOCK = 64
_MOST_HEADS, _MOST_SPLITS = 256, 200


def fused_backward_bytes(b: int, n: int, s: int, d: int) -> int:
    """Flash's and cuDNN's: the gradient of (b, n, s, d) queries in fp32, with one number for each row of scores."""
    return rounded(b * n * s * (d + 1) * FLOAT)


class _Tile(NamedTuple):
    """One block of the memory-efficient backward kernel.

    `queries` rows by `columns` of the gradient of the queries; partial gradients of keys and values, where they do not
    stay in registers, in rows of whole multiples of `keys_width` columns (0 where they do).
    """

    queries: int
    columns: int
    keys_width: int = 0


class EfficientKernel(NamedTuple):
    """What decides which memory-efficient kernel runs: fp16 or bf16, the card, and whether there is dropout."""

    half: bool
    capability: tuple[int, int]
    dropout: bool = False


def _tile(widest: int, kernel: EfficientKernel) -> _Tile:
    """Which kernel of kernels/cutlassB.h takes heads so wide, as measured over widths, types and cards."""
    small = kernel.capability in _SMALL_SHARED_MEMORY
    if not kernel.half:
        return _Tile(128, 64) if widest > 64 and kernel.capability >= (8, 0) and not small else _Tile(64, 64)
    if widest <= 64:
        return _Tile(64, 64)
    if widest > 128:
        return _Tile(128, 64, 128)
    if not small:
        return _Tile(128, 128)
    if kernel.capability == (7, 5) or (widest <= 96 and not kernel.dropout):
        return _Tile(128, 64)
    return _Tile(64, 64, 64)


def efficient_staging_bytes(heads: int, s: int, t: int, widths: tuple[int, int], kernel: EfficientKernel) -> int:
    """The memory-efficient kernel's own buffer, for partial gradients that do not fit in registers.

    `AttentionBackwardKernel::Params::workspace_size` of transformers/cuda/mem_eff_attention/kernel_backward.h
    (PyTorch 2.13), of the kernel that is compiled for these widths.

    Args:
        heads: b x n.
        s: queries.
        t: keys.
        widths: d and e.
        kernel: decides the size of a block.
    """
    d, e = widths
    tile = _tile(max(d, e), kernel)
    numbers = -(-s // tile.queries) * -(-d // tile.columns) * (tile.queries * tile.columns + 4)
    if tile.keys_width:
        splits = -(-t // _KEY_BLOCK)
        if heads >= _MOST_HEADS and t <= 2 * _KEY_BLOCK:
            splits = 1
        splits = max(1, min(splits, _MOST_SPLITS // heads))
        numbers += splits * _KEY_BLOCK * (_up(d, tile.keys_width) + _up(e, tile.keys_width))
    return heads * _up(numbers, 4) * FLOAT


def efficient_backward_bytes(heads: int, s: int, t: int, widths: tuple[int, int], kernel: EfficientKernel) -> int:
    """The most that the memory-efficient kernel's backward takes at once, in whole blocks.

    One number for each row of scores, in fp32 out of a product made before; then the staging buffer.
    """
    rows = rounded(heads * s * FLOAT)
    staged = rows + rounded(efficient_staging_bytes(heads, s, t, widths, kernel))
    return staged if kernel.half else max(staged, 2 * rows + rounded(heads * s * widths[1] * FLOAT))


def _up(number: int, to: int) -> int:
    return -(-number // to) * to
