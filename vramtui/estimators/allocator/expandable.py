"""Expandable segments: for each pool and stream one long reservation of addresses, mapped as far as it is needed."""

from vramtui.estimators.allocator.blocks import Area, Block, BlockPool
from vramtui.estimators.allocator.heap import Heap
from vramtui.estimators.torch_facts.allocator_sizes import SMALL_SEGMENT


def grow(heap: Heap, pool: BlockPool, stream: int, size: int) -> Block | None:
    """A free block of at least `size` bytes, made by mapping memory behind reserved addresses; None without memory.

    What was mapped before the device ran out stays mapped, as in PyTorch.
    """
    block = _room(heap, pool, stream, size)
    if not block.mapped and not _map(heap, block, min(block.size, size)):
        return None
    while block.size < size:
        following = block.next
        assert following is not None
        if not _map(heap, following, min(size - block.size, following.size)):
            return None
        # Mapping merged the free block before it into `following`.
        block = following
    pool.remove(block)
    return block


def unmap(heap: Heap, block: Block) -> None:
    """Give back the whole granules inside a free block; a reservation left without memory goes as well."""
    area, pool = block.area, block.pool
    assert area is not None
    start = area.address - (area.address - block.address) // area.granule * area.granule
    end = area.address + (block.address + block.size - area.address) // area.granule * area.granule
    if start >= end:
        return
    pool.remove(block)
    if start > block.address:
        before = Block(pool, block.stream, block.address, start - block.address, heap.rank_beside(block), area)
        before.put_before(block)
        pool.insert(before)
    tail = block.address + block.size - end
    if tail:
        after = Block(pool, block.stream, end, tail, heap.rank_beside(block), area)
        after.put_after(block)
        pool.insert(after)
    block.address, block.size, block.mapped = start, end - start, False
    heap.device.used -= block.size
    heap.stats.gave_back(block.size, 0)
    pool.merge(block, block.prev)
    pool.merge(block, block.next)
    if block.prev is None and block.next is None:
        heap.device.return_addresses(area.address, area.size)
    else:
        pool.insert_unmapped(block)


def reach(block: Block) -> int:
    """The size a free block can grow to: its own and that of the addresses without memory behind it."""
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)


def _room(heap: Heap, pool: BlockPool, stream: int, size: int) -> Block:
    """The first block, in order of address, from which free and unmapped neighbours reach `size`; else a new area."""
    for _, unmapped in pool.unmapped.get(stream, ()):
        first = unmapped.prev if _available(unmapped.prev) else unmapped
        assert first is not None
        reached, walk = 0, first
        while reached < size and _available(walk):
            reached += walk.size
            if walk.next is None:
                break
            walk = walk.next
        if reached >= size:
            return first
    granule = SMALL_SEGMENT if pool.small else heap.config.large_segment_size
    total = heap.device.total
    extent = -(-(total + total // 8) // granule) * granule
    area = Area(heap.device.take_addresses(extent), extent, granule, heap.next_rank())
    block = Block(pool, stream, area.address, extent, area.number, area)
    block.mapped = False
    pool.insert_unmapped(block)
    return block


def _available(block: Block | None) -> bool:
    return block is not None and not block.allocated and not block.pending


def _map(heap: Heap, block: Block, size: int) -> bool:
    """Put memory behind the first granules of an unmapped block, enough for `size`, and join it to free neighbours."""
    area, pool = block.area, block.pool
    assert area is not None
    needed = -(-size // area.granule) * area.granule
    if needed > heap.device.free:
        return False
    pool.remove_unmapped(block)
    block.mapped = True
    if needed < block.size:
        rest = Block(pool, block.stream, block.address + needed, block.size - needed, heap.rank_beside(block), area)
        rest.mapped = False
        rest.put_after(block)
        pool.insert_unmapped(rest)
        block.size = needed
    pool.merge(block, block.prev)
    pool.merge(block, block.next)
    pool.insert(block)
    heap.device.used += needed
    heap.stats.took(needed, 0)
    return True
