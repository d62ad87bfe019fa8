"""What some CUDA kernels allocate for themselves while they run."""

from functools import lru_cache

from vramtui.estimators.analytic.sizes.allocator_rounding import rounded

# Streaming multiprocessors and threads each holds, of the card most seen with a compute capability. They bound the
# scratch of large reductions only.
_PROCESSORS: dict[tuple[int, int], tuple[int, int]] = {
    (7, 0): (80, 2048),
    (7, 5): (40, 1024),
    (8, 0): (108, 2048),
    (8, 6): (82, 1536),
    (8, 9): (128, 1536),
    (9, 0): (132, 2048),
    (10, 0): (148, 2048),
    (12, 0): (170, 1536),
}
MAX_THREADS = 512
WARP = 32


@lru_cache(maxsize=4096)
def column_sum_scratch(rows: int, columns: int, capability: tuple[int, int]) -> int:
    """Bytes that summing a (rows, columns) matrix over its rows keeps for partial sums, as for a bias's gradient.

    Follows setReduceConfig (ATen/native/cuda/Reduce.cuh): a long reduction is spread over several blocks of threads,
    and each leaves a partial sum in fp32 for every thread of the block.
    """
    vector = 4 if columns % 4 == 0 else 2 if columns % 2 == 0 else 1
    threads = MAX_THREADS // vector
    wide = _power_below(columns // vector, threads)
    tall = _power_below(rows, threads)
    width = min(wide, WARP)
    height = min(tall, threads // width)
    width = min(wide, threads // height)
    if rows < height * 16 and rows < 256:
        return 0
    each = -(-rows // height)
    grid = -(-(columns // vector) // width)
    known = [entry for entry in _PROCESSORS if entry <= capability]
    processors, resident = _PROCESSORS[known[-1] if known else (7, 0)]
    target = processors * (resident // (width * height))
    if each < 256 or grid > target:
        return 0
    blocks = max(min(-(-target // grid), -(-each // 16)), -(-each // 256))
    return 0 if blocks <= 1 else rounded(4 * columns * blocks * width * vector) + rounded(4 * grid)


def _power_below(number: int, most: int) -> int:
    return most if number >= most else 1 << max(number, 1).bit_length() - 1


def fused_attention_backward_scratch(batch: int, heads: int, sequence: int, head_dim: int) -> int:
    """Bytes that flash's and cuDNN's backward needs beside the gradients.

    The queries' gradient is summed in fp32, with one number for each row of scores.
    """
    return rounded(batch * heads * sequence * (head_dim + 1) * 4)


def efficient_attention_backward_scratch(
    heads: int, queries: int, dims: tuple[int, int], width: int, capability: tuple[int, int]
) -> int:
    """Bytes that the memory-efficient kernel's backward needs beside the gradients.

    `heads` are those of the whole batch, `dims` a head's width of keys and of values.

    One number for each row of scores, in fp32 out of a product made before; then a block of scores for each stretch of
    queries (kernel_backward.h, Params::workspace_size). In half precision sums of wide heads are left out.
    """
    rows = rounded(heads * queries * 4)
    half, widest = width == 2, max(dims)
    roomy = widest > 64 and (half or capability >= (8, 0)) and capability not in {(7, 5), (8, 6), (8, 9)}
    block = 128 if roomy else 64
    numbers = -(-queries // block) * -(-dims[0] // block) * (block * block + 4)
    staged = rows + rounded(heads * -(-numbers // 4) * 16)
    return staged if half else max(staged, 2 * rows + rounded(heads * queries * dims[1] * 4))
