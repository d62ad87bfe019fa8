"""Sizes of the caching allocator's blocks and segments.

c10/core/AllocatorConfig.h (kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge) and
c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, should_split) of PyTorch 2.13.
"""

from functools import lru_cache

from vramtui.core.base.units import MIB

MIN_BLOCK = 512  # every request is a multiple of it
# The largest request, once rounded, that the small pool serves; a remainder up to it stays with a large block.
SMALL_LIMIT = MIB
SMALL_SEGMENT, LARGE_SEGMENT = 2 * MIB, 20 * MIB
LARGE_EXACT = 10 * MIB  # from here on a segment is the request rounded up to `SEGMENT_ROUNDING`
SEGMENT_ROUNDING = 2 * MIB
# The first release that takes of free blocks of one size the one at the lowest address. 2.12 takes the oldest, by when
# it was cut or got from the device: so on its CUDA build for each of 1,713 requests of two steps of a ResNet-50, of
# which 230 are elsewhere by address (tests/golden/allocator_2.12.json.gz has the first 810).
LOWEST_FIRST_SINCE = (2, 13)


def rounded(size: int) -> int:
    """`size` bytes in whole blocks of 512; nothing for nothing."""
    return -(-size // MIN_BLOCK) * MIN_BLOCK


def segment_bytes(size: int, large_segment: int = LARGE_SEGMENT) -> int:
    """Bytes taken from the device for a rounded request that no cached block serves (get_allocation_size)."""
    if size <= SMALL_LIMIT:
        return SMALL_SEGMENT
    return large_segment if size < LARGE_EXACT else -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING


def tail(size: int) -> int:
    """Bytes a large tensor holds beyond its own when it comes from a segment of its own.

    From 10 MiB a request gets a segment in steps of 2 MiB, and what remains of it is split off only above 1 MiB;
    otherwise it stays part of the block and counts as allocated.
    """
    if size < LARGE_EXACT:
        return 0
    remainder = -size % SEGMENT_ROUNDING
    return remainder - (-size % MIN_BLOCK) if remainder <= SMALL_LIMIT else 0


@lru_cache(maxsize=4096)
def bytes_alone(size: int) -> int:
    """Bytes that a tensor of `size` bytes holds when nothing shares its segment: whole blocks, and its tail."""
    return rounded(size) + tail(size)
