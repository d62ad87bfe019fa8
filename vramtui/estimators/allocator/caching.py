"""The allocator itself: requests in, blocks out."""

from vramtui.estimators.allocator.best_fit import best_fit, leaves_rest
from vramtui.estimators.allocator.blocks import Block, BlockPool
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.allocator.expandable import grow
from vramtui.estimators.allocator.failure import AllocatorOutOfMemory
from vramtui.estimators.allocator.heap import Heap
from vramtui.estimators.allocator.layout import SegmentView, lay_out
from vramtui.estimators.allocator.reclaim import collect_garbage, release_cached, release_oversize
from vramtui.estimators.allocator.stream_events import Waiting
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, SMALL_LIMIT

DEFAULT = AllocatorConfig()


class CachingAllocator:
    """One device's caching allocator.

    Args:
        total_memory: bytes the device can give to it.
        config: the settings; PyTorch's defaults without one.
    """

    def __init__(self, total_memory: int, config: AllocatorConfig = DEFAULT) -> None:
        self.config = config
        self._heap = Heap(total_memory, config)
        self.stats = self._heap.stats
        self._live: dict[int, Block] = {}
        self._waiting = Waiting()
        self._count = 0
        self._ages = False
        if config.memory_fraction is not None:
            self.set_memory_fraction(config.memory_fraction)

    @property
    def total_memory(self) -> int:
        """Bytes of the device."""
        return self._heap.device.total

    @property
    def free_memory(self) -> int:
        """Bytes of the device that nobody holds."""
        return max(self._heap.device.free, 0)

    def hold_outside(self, size: int) -> None:
        """Take `size` bytes of the device for what is no allocation, as the CUDA context; they stay taken."""
        self._heap.device.used += size

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit what may be reserved to a share of the device (`set_per_process_memory_fraction`)."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"a memory fraction lies between 0 and 1, not at {fraction}")
        self._heap.allowed = int(fraction * self.total_memory)
        self._ages = self.config.garbage_collection_threshold > 0

    def malloc(self, size: int, stream: int = 0) -> int:
        """A block for `size` bytes on `stream`: its id, or 0 for 0 bytes.

        Raises:
            OutOfMemory: the request cannot be served; the counters say so too.
        """
        if size <= 0:
            if size:
                raise ValueError(f"cannot allocate {size} bytes")
            return 0
        if self._waiting.finished:
            self._recycle_finished()
        heap, stats = self._heap, self.stats
        rounded = self.config.rounded(size)
        pool = heap.small if rounded <= SMALL_LIMIT else heap.large
        if self._ages:
            pool.searches += 1
        block = best_fit(pool, stream, rounded, self.config) or self._obtain(pool, stream, rounded, size)
        splits = block.size - rounded >= MIN_BLOCK and leaves_rest(block, rounded, self.config)
        if splits:
            block = self._split(block, rounded)
        elif block.area is None and (block.prev is not None or block.next is not None):
            stats.inactive_split -= block.size
            stats.inactive_split_blocks -= 1
        self._count = number = self._count + 1
        block.allocated = True
        block.requested = size
        block.number = number
        self._live[number] = block
        stats.handed_out(block.size, size)
        return number

    def free(self, block_id: int) -> None:
        """Hand a block back; 0 is none. One that other streams use stays active until those have caught up."""
        if block_id == 0:
            return
        block = self._live.pop(block_id, None)
        if block is None:
            raise KeyError(f"no live block has the id {block_id}")
        block.allocated = False
        self.stats.allocations -= 1
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
        """Give every unused segment back to the device, once all streams are done."""
        self.synchronize()
        self._recycle_finished()
        release_cached(self._heap)

    def reset_peaks(self) -> None:
        """Let the peaks start again from what is held now."""
        self.stats.reset_peaks()

    def block_size(self, block_id: int) -> int:
        """Bytes a live block really holds: what `allocated` counts for it."""
        return self._live[block_id].size if block_id else 0

    def block_address(self, block_id: int) -> int:
        """Where a live block starts; 0 for none."""
        return self._live[block_id].address if block_id else 0

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
        raise AllocatorOutOfMemory(
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
        stats = self.stats
        was_split = rest.prev is not None or rest.next is not None
        block = Block(rest.pool, rest.stream, rest.address, size, rest.segment, rest.area)
        block.prev, block.next = rest.prev, rest
        if rest.prev is not None:
            rest.prev.next = block
        rest.prev = block
        rest.address += size
        rest.size -= size
        rest.pool.insert(rest)
        if rest.area is None:
            if was_split:
                stats.inactive_split -= size
            else:
                stats.inactive_split += rest.size
                stats.inactive_split_blocks += 1
        return block

    def _recycle_finished(self) -> None:
        for block in self._waiting.collect():
            self._recycle(block)

    def _recycle(self, block: Block) -> None:
        """A freed block joins its free neighbours and goes back to its pool."""
        stats, pool = self.stats, block.pool
        stats.active_blocks -= 1
        stats.active -= block.size
        stats.requested -= block.requested
        size, joined = block.size, 0
        for other in (block.prev, block.next):
            if other is not None and not other.allocated and pool.merge(block, other):
                joined += 1
        pool.insert(block)
        if block.area is None:
            stats.inactive_split -= block.size - size
            stats.inactive_split_blocks -= joined
            if block.prev is not None or block.next is not None:
                stats.inactive_split += block.size
                stats.inactive_split_blocks += 1
