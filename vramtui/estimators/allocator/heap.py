"""State that the allocator's parts share: pools, the device below them, counters.

An expandable segment is one long reservation of addresses for each pool and stream, mapped as far as it is needed.
"""

from bisect import bisect_left

from vramtui.estimators.allocator.blocks import Area, Block, BlockPool
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.allocator_sizes import SMALL_SEGMENT


class Stats:
    """Counters as PyTorch keeps them over both pools, in bytes unless said otherwise.

    Attributes:
        allocated: sizes of the blocks handed out, with what a block keeps beyond its request.
        reserved: taken from the device.
        active: handed out, or freed and still waiting for another stream.
        requested: as asked for, of the active blocks.
        segments: how many pieces the device gave; expandable segments are left out.
        retries: requests for which all cached blocks were released.
        ooms: refused requests.
        device_allocs: calls that took memory from the device.
        device_frees: calls that gave memory back to it.
        peak_allocated: most of `allocated` since the peaks were last reset; so for the other peaks.
    """

    __slots__ = (
        "active", "allocated", "device_allocs", "device_frees", "ooms", "peak_active", "peak_allocated",
        "peak_requested", "peak_reserved", "peak_segments", "requested", "reserved", "retries", "segments",
    )  # fmt: skip

    def __init__(self) -> None:
        self.allocated = self.reserved = self.active = self.requested = self.segments = 0
        self.retries = self.ooms = self.device_allocs = self.device_frees = 0
        self.reset_peaks()

    def reset_peaks(self) -> None:
        """Let every peak start again from what is held now (`torch.cuda.reset_peak_memory_stats`)."""
        self.peak_allocated = self.allocated
        self.peak_active = self.active
        self.peak_requested = self.requested
        self.peak_reserved = self.reserved
        self.peak_segments = self.segments

    def handed_out(self, size: int, requested: int) -> None:
        """A block of `size` bytes serves a request of `requested` bytes."""
        self.allocated += size
        self.active += size
        self.requested += requested
        # No `max`: three calls at every request.
        if self.allocated > self.peak_allocated:  # noqa: PLR1730 - as said above
            self.peak_allocated = self.allocated
        if self.active > self.peak_active:  # noqa: PLR1730 - as said above
            self.peak_active = self.active
        if self.requested > self.peak_requested:  # noqa: PLR1730 - as said above
            self.peak_requested = self.requested

    def took(self, size: int, segments: int) -> None:
        """The device gave `size` bytes, as `segments` new segments."""
        self.device_allocs += 1
        self.segments += segments
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.peak_segments = max(self.peak_segments, self.segments)

    def gave_back(self, size: int, segments: int) -> None:
        """The device got `size` bytes back, `segments` whole segments."""
        self.device_frees += 1
        self.segments -= segments
        self.reserved -= size


FIRST_ADDRESS = 0x2000_0000_0000


"""Address of the first segment. Nothing depends on the value; a fixed one makes addresses comparable."""
LAST_ADDRESS = 1 << 100
"""Far beyond 64 bits, so that no number of reservations can run out."""
ALIGNMENT = 2 << 20
"""Segments begin at multiples of this."""


class DeviceMemory:
    """Bytes and addresses of one device. Segments lie in the lowest gap that holds them."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._gaps: list[tuple[int, int]] = [(FIRST_ADDRESS, LAST_ADDRESS)]

    @property
    def free(self) -> int:
        return self.total - self.used

    def take_addresses(self, size: int) -> int:
        """The start of the lowest gap of `size` bytes, which is then taken."""
        size = _aligned(size)
        for index, (start, end) in enumerate(self._gaps):
            if end - start >= size:
                if end - start == size:
                    del self._gaps[index]
                else:
                    self._gaps[index] = (start + size, end)
                return start
        raise AssertionError("the address space is larger than any sum of segments")

    def return_addresses(self, address: int, size: int) -> None:
        """Make addresses available again, joined with the gaps next to them."""
        gaps = self._gaps
        start, end = address, address + _aligned(size)
        index = bisect_left(gaps, (start, end))
        if index < len(gaps) and gaps[index][0] == end:
            end = gaps.pop(index)[1]
        if index and gaps[index - 1][1] == start:
            index -= 1
            start = gaps.pop(index)[0]
        gaps.insert(index, (start, end))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Heap:
    """The two pools, the device below them, the counters, and how segments come and go. With `by_age` the oldest block
    of equal sizes is taken, not the one at the lowest address; `allowed` are the bytes of a memory fraction, if any.
    """

    def __init__(self, total_memory: int, config: AllocatorConfig, *, by_age: bool = False) -> None:
        self.config = config
        self.device = DeviceMemory(total_memory)
        self.stats = Stats()
        self.small = BlockPool(small=True)
        self.large = BlockPool(small=False)
        self.allowed: int | None = None
        self._ranks = 0
        self._by_age = by_age

    def next_rank(self) -> int:
        """The rank of a new segment: its age, in the order the device gave them."""
        self._ranks += 1
        return self._ranks

    def rank_beside(self, block: Block) -> int:
        """The rank of a block that is cut out of `block`: that of its segment, or its own age."""
        return self.next_rank() if self._by_age else block.rank

    def new_segment(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """A segment of `size` bytes as one block (`cudaMalloc`); None when the device has too little left."""
        if size > self.device.free:
            return None
        self.device.used += size
        self.stats.took(size, 1)
        return Block(pool, stream, self.device.take_addresses(size), size, self.next_rank())

    def release(self, block: Block) -> None:
        """Give a whole free segment back (`cudaFree`)."""
        block.pool.remove(block)
        self.device.return_addresses(block.address, block.size)
        self.device.used -= block.size
        self.stats.gave_back(block.size, 1)


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
