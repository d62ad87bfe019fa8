"""The allocator itself: requests in, blocks out; which block fits best, and what is given back before it fails."""

from bisect import bisect_left
from collections.abc import Iterator

from vramtui.core.base.units import format_bytes
from vramtui.estimators.allocator.blocks import Area, Block, BlockPool, SegmentView, lay_out
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.allocator_sizes import LOWEST_FIRST_SINCE, MIN_BLOCK, SMALL_LIMIT, SMALL_SEGMENT
from vramtui.estimators.torch_facts.releases import RULES


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


class AllocatorOutOfMemoryError(Exception):
    """A request was refused after every cached block that could go had gone. Bytes throughout: for what was `requested`
    the allocator tried to get `segment_size` from the device, and so much is `missing`; `free` was left of its
    `total`, the program held `allocated` and the allocator `reserved`; a memory fraction, if any, `allowed` so much.
    """

    def __init__(
        self,
        *,
        requested: int,
        segment_size: int,
        free: int,
        allocated: int,
        reserved: int,
        total: int,
        allowed: int | None = None,
    ) -> None:
        self.requested = requested
        self.missing = segment_size - (free if allowed is None else min(free, max(allowed - reserved, 0)))
        self.segment_size = segment_size
        self.free = free
        self.allocated = allocated
        self.reserved = reserved
        self.total = total
        self.allowed = allowed
        limit = "" if allowed is None else f", {format_bytes(allowed, 2)} allowed"
        super().__init__(
            f"out of memory: tried to allocate {format_bytes(segment_size, 2)}; of {format_bytes(total, 2)}{limit}, "
            f"{format_bytes(free, 2)} free, {format_bytes(allocated, 2)} allocated, "
            f"{format_bytes(reserved - allocated, 2)} reserved but unallocated"
        )


def best_fit(pool: BlockPool, stream: int, size: int, config: AllocatorConfig) -> Block | None:
    """The smallest free block of the stream that holds `size` bytes, taken out of its pool; None if there is none.

    Between equal sizes the lower rank wins, then the lower address.
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
        whole = keys[index][0]
        if size < limit <= whole:
            return None
        if size >= limit and whole >= size + config.max_non_split_rounding:
            return None
    return keys.pop(index)[3]


def leaves_rest(block: Block, size: int, config: AllocatorConfig) -> bool:
    """Return whether what a block has beyond `size` goes back to the pool; otherwise the block keeps it."""
    if block.pool.small or config.expandable_segments:
        return True
    limit = config.max_split_size
    return (limit is None or size < limit) and block.size - size > SMALL_LIMIT


class Waiting:
    """Blocks between `free` and the end of the other streams' work on them."""

    __slots__ = ("_blocks", "_events", "finished")

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._events: dict[int, list[Block]] = {}
        self.finished: list[Block] = []
        """One entry for every event that is over and has not been looked at."""

    def add(self, block: Block, streams: set[int]) -> None:
        """Let a freed block wait for what is queued on each of `streams`."""
        block.pending = len(streams)
        self._blocks[block.number] = block
        for stream in sorted(streams):
            self._events.setdefault(stream, []).append(block)

    def synchronize(self, stream: int | None) -> None:
        """Finish the work queued on `stream`, or on all."""
        for each in [stream] if stream is not None else sorted(self._events):
            self.finished.extend(self._events.pop(each, ()))

    def collect(self) -> Iterator[Block]:
        """The blocks that wait for nothing more, now that the finished events are looked at.

        One at a time: until it is its turn a block still counts as waiting, so that no neighbour swallows it.
        """
        finished, self.finished = self.finished, []
        for block in finished:
            block.pending -= 1
            if block.pending == 0:
                del self._blocks[block.number]
                yield block

    def drop(self, number: int) -> Block | None:
        """Take one block out, whatever it waits for; None if it does not wait."""
        block = self._blocks.pop(number, None)
        if block is None:
            return None
        block.pending = 0
        for each, blocks in list(self._events.items()):
            self._events[each] = [other for other in blocks if other is not block]
        self.finished = [other for other in self.finished if other is not block]
        return block

    def blocks(self) -> list[Block]:
        return list(self._blocks.values())


def collect_garbage(heap: Heap) -> None:
    """Free whole idle segments of the large pool, the longest idle first, once the threshold is passed.

    Age is the number of searches since a block became free. Each round frees all that are at least as old as the
    average, even beyond what is needed, so that rounds stay rare.
    """
    assert heap.allowed is not None
    target = heap.stats.reserved - int(heap.config.garbage_collection_threshold * heap.allowed)
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


DEFAULT = AllocatorConfig()


class CachingAllocator:
    def __init__(self, total_memory: int, config: AllocatorConfig = DEFAULT, release: tuple[int, int] = RULES) -> None:
        self.config = config
        self.release = release
        self._heap = Heap(total_memory, config, by_age=release < LOWEST_FIRST_SINCE)
        self.stats = self._heap.stats
        self._live: dict[int, Block] = {}
        self._waiting = Waiting()
        self._count = 0
        self._ages = False
        if config.memory_fraction is not None:
            self.set_memory_fraction(config.memory_fraction)

    @property
    def total_memory(self) -> int:
        return self._heap.device.total

    @property
    def free_memory(self) -> int:
        return max(self._heap.device.free, 0)

    @property
    def largest_available(self) -> int:
        """Bytes that one request may hope for, as cuDNN is given (c10/cuda/CUDACachingAllocator.cpp, `cacheInfo`): the
        device's free memory, or the largest cached block where that is larger.
        """
        pools = (self._heap.small, self._heap.large)
        return max(self.free_memory, *(keys[-1][0] for pool in pools for keys in pool.free.values() if keys), 0)

    def hold_outside(self, size: int) -> None:
        """Take `size` bytes of the device for good, for something like the CUDA context."""
        self._heap.device.used += size

    def with_config(self, config: AllocatorConfig) -> "CachingAllocator":
        """An allocator of the same card under other settings; nothing may have been requested of this one yet."""
        twin = CachingAllocator(self.total_memory, config, self.release)
        twin.hold_outside(self._heap.device.used)
        return twin

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit what may be reserved to a share of the device (`set_per_process_memory_fraction`)."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"a memory fraction lies between 0 and 1, not at {fraction}")
        self._heap.allowed = int(fraction * self.total_memory)
        self._ages = self.config.garbage_collection_threshold > 0

    def malloc(self, size: int, stream: int = 0) -> int:
        """A block for `size` bytes on `stream`: its id, or 0 for 0 bytes. Raises OutOfMemory if the request cannot be
        served; the counters say so too.
        """
        if size <= 0:
            if size:
                raise ValueError(f"cannot allocate {size} bytes")
            return 0
        if self._waiting.finished:
            self._recycle_finished()
        heap = self._heap
        rounded = self.config.rounded(size)
        pool = heap.small if rounded <= SMALL_LIMIT else heap.large
        if self._ages:
            pool.searches += 1
        block = best_fit(pool, stream, rounded, self.config) or self._obtain(pool, stream, rounded, size)
        if block.size - rounded >= MIN_BLOCK and leaves_rest(block, rounded, self.config):
            block = self._split(block, rounded)
        self._count = number = self._count + 1
        block.allocated = True
        block.requested = size
        block.number = number
        self._live[number] = block
        self.stats.handed_out(block.size, size)
        return number

    def free(self, block_id: int) -> None:
        """Hand a block back; 0 is none. One that other streams use stays active until those have caught up."""
        if block_id == 0:
            return
        block = self._live.pop(block_id, None)
        if block is None:
            raise KeyError(f"no live block has the id {block_id}")
        block.allocated = False
        self.stats.allocated -= block.size
        if block.users:
            self._waiting.add(block, block.users)
            block.users = None
        else:
            self._recycle(block)

    def record_stream(self, block_id: int, stream: int) -> None:
        """Note that work on `stream` uses a block: after `free` it waits for that stream (`Tensor.record_stream`)."""
        if block_id == 0:
            return
        block = self._live[block_id]
        if stream != block.stream:
            block.users = (block.users or set()) | {stream}

    def synchronize(self, stream: int | None = None) -> None:
        """Work queued so far on `stream`, or on all, is done; the blocks it held are recycled by the next `malloc`."""
        self._waiting.synchronize(stream)

    def complete(self, block_id: int) -> None:
        """Recycle a freed block now, whatever it waits for: its events are known to be over."""
        block = self._waiting.drop(block_id)
        if block is not None:
            self._recycle(block)

    def empty_cache(self) -> None:
        """Give back segments without a part in use, and free granules of expandable ones, once streams are done."""
        self.synchronize()
        self._recycle_finished()
        for block in (*self._heap.large.blocks(), *self._heap.small.blocks()):
            if block.area is not None:
                unmap(self._heap, block)
            elif block.prev is None and block.next is None:
                self._heap.release(block)

    def reset_peaks(self) -> None:
        """Let the peaks start again from what is held now."""
        self.stats.reset_peaks()

    def block_size(self, block_id: int) -> int:
        """Bytes a live block really holds: what `allocated` counts for it."""
        return self._live[block_id].size if block_id else 0

    def segments(self) -> list[SegmentView]:
        """Every segment with its blocks, by address."""
        used = [*self._live.values(), *self._waiting.blocks()]
        return lay_out([*used, *self._heap.small.blocks(), *self._heap.large.blocks()])

    def _obtain(self, pool: BlockPool, stream: int, size: int, requested: int) -> Block:
        """A block from the device; cached blocks go back to it first where that is what it takes."""
        heap = self._heap
        if self._ages:
            collect_garbage(heap)
        block = self._from_device(pool, stream, size)
        if block is None and release_oversize(heap, pool, stream, size):
            block = self._from_device(pool, stream, size)
        if block is None:
            self.empty_cache()
            self.stats.retries += 1
            block = self._from_device(pool, stream, size)
        if block is not None:
            return block
        self.stats.ooms += 1
        raise AllocatorOutOfMemoryError(
            requested=requested,
            segment_size=self.config.segment_size(size),
            free=self.free_memory,
            allocated=self.stats.allocated,
            reserved=self.stats.reserved,
            total=self.total_memory,
            allowed=heap.allowed,
        )

    def _from_device(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        heap = self._heap
        segment_size = self.config.segment_size(size)
        if heap.allowed is not None and self.stats.reserved + segment_size > heap.allowed:
            return None
        if self.config.expandable_segments:
            return grow(heap, pool, stream, size)
        return heap.new_segment(pool, stream, segment_size)

    def _split(self, rest: Block, size: int) -> Block:
        """The first `size` bytes of a block as a block of their own; the rest goes back to the pool."""
        block = Block(rest.pool, rest.stream, rest.address, size, self._heap.rank_beside(rest), rest.area)
        block.prev, block.next = rest.prev, rest
        if rest.prev is not None:
            rest.prev.next = block
        rest.prev = block
        rest.address += size
        rest.size -= size
        rest.pool.insert(rest)
        return block

    def _recycle_finished(self) -> None:
        for block in self._waiting.collect():
            self._recycle(block)

    def _recycle(self, block: Block) -> None:
        """A freed block joins its free neighbours and goes back to its pool."""
        stats, pool = self.stats, block.pool
        stats.active -= block.size
        stats.requested -= block.requested
        for other in (block.prev, block.next):
            if other is not None and not other.allocated:
                pool.merge(block, other)
        pool.insert(block)
