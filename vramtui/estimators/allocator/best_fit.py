"""Which free block serves a request, and whether it is split for it."""

from bisect import bisect_left

from vramtui.estimators.allocator.blocks import Block, BlockPool
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.allocator.expandable import reach
from vramtui.estimators.torch_facts.allocator_sizes import SMALL_LIMIT


def best_fit(pool: BlockPool, stream: int, size: int, config: AllocatorConfig) -> Block | None:
    """The smallest free block of the stream that holds `size` bytes, taken out of its pool; None if there is none.

    Between equal sizes the older segment wins, then the lower address.
    """
    keys = pool.free.get(stream)
    if not keys:
        return None
    index = bisect_left(keys, (size,))  # before every block of that size
    if index == len(keys):
        return None
    limit = config.max_split_size
    if limit is None and not config.expandable_segments:
        return keys.pop(index)[3]
    if config.expandable_segments:
        # What counts is the size a block can grow to, so a larger one may be the better fit.
        while index + 1 < len(keys) and reach(keys[index + 1][3]) < reach(keys[index][3]):
            index += 1
    if limit is not None:
        found = keys[index][0]
        if size < limit <= found:
            return None
        if size >= limit and found >= size + config.max_non_split_rounding:
            return None
    return keys.pop(index)[3]


def leaves_rest(block: Block, size: int, config: AllocatorConfig) -> bool:
    """Whether what a block has beyond `size` goes back to the pool; otherwise the block keeps it."""
    if block.pool.small or config.expandable_segments:
        return True
    limit = config.max_split_size
    return (limit is None or size < limit) and block.size - size > SMALL_LIMIT
