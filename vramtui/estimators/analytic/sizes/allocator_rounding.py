"""How many bytes the caching allocator really takes for a tensor (c10/cuda/CUDACachingAllocator.cpp)."""

from vramtui.core.base.units import MIB

BLOCK = 512
OWN_SEGMENT = 10 * MIB
SEGMENT_STEP = 2 * MIB
SPLIT_ABOVE = 1 * MIB


def rounded(size: int) -> int:
    """`size` bytes in whole blocks of 512; nothing for nothing."""
    return -(-size // BLOCK) * BLOCK


def tail(size: int) -> int:
    """Bytes a large tensor holds beyond its own when it comes from a segment of its own.

    From 10 MiB a request gets a segment in steps of 2 MiB, and what remains of it is split off only above 1 MiB;
    otherwise it stays part of the block and counts as allocated.
    """
    if size < OWN_SEGMENT:
        return 0
    remainder = -size % SEGMENT_STEP
    return remainder - (-size % BLOCK) if remainder <= SPLIT_ABOVE else 0
