"""The three ways in which cached blocks go back to the device."""

from bisect import bisect_left

from vramtui.estimators.allocator.blocks import BlockPool
from vramtui.estimators.allocator.expandable import unmap
from vramtui.estimators.allocator.heap import Heap


def collect_garbage(heap: Heap) -> None:
    """Free whole idle segments of the large pool, the longest idle first, once the threshold is passed.

    Age is the number of searches since a block became free. Each round frees all that are at least as old as the
    average, even beyond what is needed, so that rounds stay rare.
    """
    assert heap.allowed is not None
    threshold = int(heap.config.garbage_collection_threshold * heap.allowed)
    target = heap.stats.reserved - threshold
    if target <= 0:
        return
    clock = heap.large.searches
    whole = [block for block in heap.large.blocks() if block.prev is None and block.next is None]
    freed = 0
    while whole and freed < target:
        mean = sum(clock - block.base for block in whole) / len(whole)
        for block in whole:
            if clock - block.base >= mean:
                freed += block.size
                heap.release(block)
        # The oldest is at least as old as the mean, so every round frees one.
        whole = [block for block in whole if clock - block.base < mean]


def release_oversize(heap: Heap, pool: BlockPool, stream: int, size: int) -> bool:
    """Free blocks too large to be split until the request might fit; whether it is worth another try."""
    limit = heap.config.max_split_size
    if limit is None or heap.config.expandable_segments:
        return False
    wanted = max(size, limit)
    keys = pool.free.get(stream, [])
    index = bisect_left(keys, (wanted,))  # before every block of that size
    if index < len(keys):
        heap.release(keys[index][3])
        return True
    freed = 0
    while freed < wanted and keys and keys[-1][0] >= limit:
        freed += keys[-1][0]
        heap.release(keys[-1][3])
    return freed >= wanted


def release_cached(heap: Heap) -> None:
    """Free every cached segment no part of which is in use, and every free granule of expandable segments."""
    for pool in (heap.large, heap.small):
        for block in pool.blocks():
            if block.area is not None:
                unmap(heap, block)
            elif block.prev is None and block.next is None:
                heap.release(block)
