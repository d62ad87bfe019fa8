"""What the backward passes of torch's fused attention kernels take beside the gradients.

Letters: b batch, n heads, s queries, t keys, d width of a head of queries and keys, e width of a head of values.
"""

from vramtui.estimators.torch_facts.allocator_sizes import rounded

FLOAT = 4
# Of these the shared memory is too small for blocks of 128 x 128 (kernels/cutlassB.h, by capability).
_SMALL_SHARED_MEMORY = frozenset({(7, 5), (8, 6), (8, 9)})
_KEY_BLOCK = 64
_MOST_HEADS, _MOST_SPLITS = 256, 200


def fused_backward_bytes(b: int, n: int, s: int, d: int) -> int:
    """Flash's and cuDNN's: the gradient of (b, n, s, d) queries in fp32, with one number for each row of scores."""
    return rounded(b * n * s * (d + 1) * FLOAT)


def efficient_staging_bytes(
    heads: int, s: int, t: int, widths: tuple[int, int], *, half: bool, capability: tuple[int, int]
) -> int:
    """The memory-efficient kernel's own buffer, for partial gradients that do not fit in registers.

    `AttentionBackwardKernel::Params::workspace_size` of transformers/cuda/mem_eff_attention/kernel_backward.h
    (PyTorch 2.13), of the kernel that is compiled for these widths.

    Args:
        heads: b x n.
        s: queries.
        t: keys.
        widths: d and e.
        half: fp16 or bf16.
        capability: decides the size of a block.
    """
    d, e = widths
    widest = max(d, e)
    roomy = widest > 64 and (half or capability >= (8, 0)) and capability not in _SMALL_SHARED_MEMORY
    block = 128 if roomy else 64
    in_registers = half and widest <= block and widest <= 128
    numbers = -(-s // block) * -(-d // block) * (block * block + 4)
    if half and not in_registers:
        splits = -(-t // _KEY_BLOCK)
        if heads >= _MOST_HEADS and t <= 2 * _KEY_BLOCK:
            splits = 1
        splits = max(1, min(splits, _MOST_SPLITS // heads))
        numbers += splits * _up(t, _KEY_BLOCK) * (_up(d, block) + _up(e, block))
    return heads * _up(numbers, 4) * FLOAT


def efficient_backward_bytes(
    heads: int, s: int, t: int, widths: tuple[int, int], *, half: bool, capability: tuple[int, int]
) -> int:
    """The most that the memory-efficient kernel's backward takes at once, in whole blocks.

    One number for each row of scores, in fp32 out of a product made before; then the staging buffer.
    """
    rows = rounded(heads * s * FLOAT)
    staged = rows + rounded(efficient_staging_bytes(heads, s, t, widths, half=half, capability=capability))
    return staged if half else max(staged, 2 * rows + rounded(heads * s * widths[1] * FLOAT))


def _up(number: int, to: int) -> int:
    return -(-number // to) * to
