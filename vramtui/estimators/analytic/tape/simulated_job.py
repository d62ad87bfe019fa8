"""A job's requests in the order of its tapes, and the caching allocator that serves them: with its defaults, or as
settings have it.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache

import msgspec

from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.analytic.tape.tape import GRADIENTS, SCRATCH, Storage, TapeStage
from vramtui.estimators.torch_facts.allocator_sizes import LARGE_SEGMENT, MIN_BLOCK, SMALL_LIMIT, segment_bytes
from vramtui.estimators.torch_facts.cublas import Workspace

SMALL_UNITS = SMALL_LIMIT // MIN_BLOCK
ENDLESS = 1 << 62

Held = tuple[int, int, object]
"""A block that is handed out: its units of 512 bytes, where it starts (or its number), and whose it is."""


class Allocate(msgspec.Struct, frozen=True, gc=False):
    """A request of so many units for `owner`; its block joins `blocks`, those of its group and size."""

    blocks: list[Held]
    units: int
    owner: object


class Release(msgspec.Struct, frozen=True, gc=False):
    """The owner's newest block of these goes; the newest of all where it has none, and nothing where there is none."""

    blocks: list[Held]
    owner: object


class Transient(msgspec.Struct, frozen=True, gc=False):
    """A request that is released before anything else happens."""

    units: int


class Move(msgspec.Struct, frozen=True, gc=False):
    """The newest block of `old` belongs to `new`, and counts among other blocks, from here on."""

    blocks: list[Held]
    old: object
    others: list[Held]
    new: object


class MatrixProduct(msgspec.Struct, frozen=True, gc=False):
    """A matrix product; the first takes its thread's workspace: so many units, unless `blocks` has them."""

    blocks: list[Held]
    units: int


Step = Allocate | Release | Transient | Move | MatrixProduct


def pop_block(blocks: list[Held], owner: object) -> Held:
    """The owner's newest block, or the newest of all where it has none, as a gradient that another block handed on."""
    at = len(blocks) - 1
    while at >= 0 and blocks[at][2] is not owner:
        at -= 1
    return blocks.pop(at)


class _FreeBlocks:
    """The free blocks of a pool: where those of each size start, in order; and the sizes, some with none left.

    A rest of at least `least` units is split off.
    """

    __slots__ = ("least", "sizes", "starts")

    def __init__(self, least: int) -> None:
        self.starts: dict[int, list[int]] = {}
        self.sizes: list[int] = []
        self.least = least

    def add(self, size: int, start: int) -> None:
        starts = self.starts.get(size)
        if starts is None:
            self.starts[size] = [start]
            insort(self.sizes, size)
        else:
            insort(starts, start)

    def remove(self, size: int, start: int) -> None:
        starts = self.starts[size]
        del starts[bisect_left(starts, start)]

    def best(self, units: int) -> int:
        """The least size of a block that holds so many; 0 where none does."""
        sizes, at = self.sizes, bisect_left(self.sizes, units)
        while at < len(sizes):
            if self.starts[sizes[at]]:
                return sizes[at]
            del self.starts[sizes.pop(at)]
        return 0


class DefaultHeap:
    """The allocator with its defaults, on a card that never runs out.

    `estimators.allocator` is the whole of it and answers the same. What is left where no segment is ever given back is
    the best fit, what is split off, and the joining of free neighbours. Sizes and addresses are in units of 512 bytes.
    Between equal sizes the lowest address is taken: that of the older segment.
    """

    def __init__(self) -> None:
        self._small, self._large = _FreeBlocks(1), _FreeBlocks(SMALL_UNITS + 1)
        # Of free blocks: sizes by where they start, and starts by where they end.
        self._sizes: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._end = self._allocated = self._peak_allocated = self._reserved = 0

    def play(self, steps: Iterable[Step]) -> None:
        small, large, sizes, starts = self._small, self._large, self._sizes, self._starts
        allocated, peak = self._allocated, self._peak_allocated
        for step in steps:
            # Of many thousand steps `match` takes half of the time, `isinstance` a sixth, and so does `max`.
            if type(step) is Allocate:
                units = step.units
                free = small if units <= SMALL_UNITS else large
                same = free.starts.get(units)
                if same:
                    start = same.pop(0)
                    del sizes[start], starts[start + units]
                else:
                    units, start = self._cut(free, units)
                allocated += units
                if allocated > peak:  # noqa: PLR1730 - as said above
                    peak = allocated
                step.blocks.append((units, start, step.owner))
            elif type(step) is Release:
                blocks, owner = step.blocks, step.owner
                if not blocks:
                    continue
                units, start, _ = blocks.pop() if blocks[-1][2] is owner else pop_block(blocks, owner)
                allocated -= units
                free = small if units <= SMALL_UNITS else large
                end = start + units
                if end in sizes:
                    after = sizes.pop(end)
                    free.remove(after, end)
                    end += after
                if start in starts:
                    end_before, start = start, starts.pop(start)
                    free.remove(end_before - start, start)
                sizes[start] = units = end - start
                starts[end] = start
                same = free.starts.get(units)
                if same:
                    insort(same, start)
                else:
                    free.add(units, start)
            elif type(step) is Transient:
                units = step.units
                free = small if units <= SMALL_UNITS else large
                if not free.starts.get(units):
                    whole = self._best(free, units)
                    if whole - units < free.least:
                        units = whole
                if allocated + units > peak:  # noqa: PLR1730 - as said above
                    peak = allocated + units
            elif type(step) is Move:
                step.others.append((*pop_block(step.blocks, step.old)[:2], step.new))
            elif type(step) is MatrixProduct and not step.blocks:
                units, start = self._cut(small if step.units <= SMALL_UNITS else large, step.units)
                step.blocks.append((units, start, None))
                allocated += units
                peak = max(peak, allocated)
        self._allocated, self._peak_allocated = allocated, peak

    @property
    def peak_allocated(self) -> int:
        return self._peak_allocated * MIN_BLOCK

    @property
    def peak_reserved(self) -> int:
        return self._reserved * MIN_BLOCK

    def _best(self, free: _FreeBlocks, units: int) -> int:
        """The size of the free block that fits so many best: of a new segment where none does."""
        size = free.best(units)
        if not size:
            size, start = _segment_units(units), self._end
            self._sizes[start], self._starts[start + size] = size, start
            free.add(size, start)
            self._reserved += size
            self._end += size + 1  # segments are never joined
        return size

    def _cut(self, free: _FreeBlocks, units: int) -> tuple[int, int]:
        """Units and start of the free block that fits so many best, or of the head of it."""
        at = bisect_left(free.sizes, units)
        fits = at < len(free.sizes) and free.starts[free.sizes[at]]
        whole = free.sizes[at] if fits else self._best(free, units)
        start = free.starts[whole].pop(0)
        rest = whole - units
        del self._sizes[start]
        if rest < free.least:
            del self._starts[start + whole]
            return whole, start
        tail = start + units
        self._sizes[tail] = rest
        self._starts[start + whole] = tail
        same = free.starts.get(rest)
        if same:
            insort(same, tail)
        else:
            free.add(rest, tail)
        return units, start


class ConfiguredHeap:
    """The allocator with settings.

    Args:
        config: the settings.
        total: bytes of the card; one that never runs out by default.
        outside: bytes of it that are taken by something other than allocations.
    """

    def __init__(self, config: AllocatorConfig, total: int = ENDLESS, outside: int = 0) -> None:
        self._allocator = CachingAllocator(total, config)
        self._allocator.hold_outside(outside)

    def play(self, steps: Iterable[Step]) -> None:
        malloc, free = self._allocator.malloc, self._allocator.free
        for step in steps:
            match step:
                case Allocate():
                    step.blocks.append((step.units, malloc(step.units * MIN_BLOCK), step.owner))
                case Release():
                    if step.blocks:
                        free(pop_block(step.blocks, step.owner)[1])
                case Transient():
                    free(malloc(step.units * MIN_BLOCK))
                case Move():
                    step.others.append((*pop_block(step.blocks, step.old)[:2], step.new))
                case MatrixProduct():
                    if not step.blocks:
                        step.blocks.append((step.units, malloc(step.units * MIN_BLOCK), None))

    @property
    def peak_allocated(self) -> int:
        return self._allocator.stats.peak_allocated

    @property
    def peak_reserved(self) -> int:
        return self._allocator.stats.peak_reserved


@lru_cache(maxsize=1024)
def _segment_units(units: int) -> int:
    return segment_bytes(units * MIN_BLOCK) // MIN_BLOCK


JobHeap = DefaultHeap | ConfiguredHeap


class Peaks(msgspec.Struct, frozen=True):
    """Peaks in bytes as the allocator's own counters have them, and the largest segment of any pass.

    Whether one block of that size finds a hole or takes a new segment hangs on the order of far smaller ones.
    """

    allocated: int
    reserved: int
    segment: int


class SimulatedJob:
    """Plays one job to a heap, on one stream: `play` serves a pass, whose first matrix product takes its workspace.

    Attributes:
        live: blocks by group and by what a tape says that they take; let go newest first.
        largest: bytes of the largest request of a pass.
        workspace: what cuBLAS takes in a thread.
    """

    def __init__(self, stages: Sequence[TapeStage], workspace: Workspace, heap: JobHeap | None = None) -> None:
        self.live: defaultdict[tuple[str, int], list[Held]] = defaultdict(list)
        self.workspace = workspace
        self.largest = 0
        # A tape counts the tail of a segment of its own, which is not asked for.
        storages = (storage for stage in stages for node in stage.tape.nodes for storage in node.makes)
        self._asked = {storage.size: storage.numel * storage.itemsize for storage in storages}
        self._heap = DefaultHeap() if heap is None else heap
        self.play = self._heap.play

    def units_of(self, size: int) -> int:
        """Units of the request for what takes `size` bytes on a tape."""
        self.largest = max(self.largest, size)
        return -(-self._asked.get(size, size) // MIN_BLOCK)

    def take(self, name: str, sizes: Sequence[int]) -> None:
        blocks = self.live[name, 0]
        self.play([Allocate(blocks, -(-size // MIN_BLOCK), None) for size in sizes if size])

    def pop(self, name: str) -> list[Held]:
        blocks = self.live[name, 0]
        taken = blocks.copy()
        blocks.clear()
        return taken

    def release(self, blocks: Iterable[Held]) -> None:
        self.play([Release([one], one[2]) for one in blocks])

    def drop(self, name: str) -> None:
        for (group, _), blocks in self.live.items():
            if group == name:
                self.release(blocks)
                blocks.clear()

    @property
    def peaks(self) -> Peaks:
        segment = max(LARGE_SEGMENT, segment_bytes(self.largest))
        return Peaks(self._heap.peak_allocated, self._heap.peak_reserved, segment)


class AllocationTrace:
    """Writes down what a replay asks of a job's allocator, of a block that repeats as often as it does."""

    __slots__ = ("_job", "_ran", "_thread", "steps")

    def __init__(self, job: SimulatedJob, thread: str) -> None:
        self.steps: list[Step] = []
        self._job = job
        self._thread = thread
        self._ran: dict[Hashable, list[Step]] = {}

    def take(self, group: str, size: int, owner: object = None, bias: int = 0) -> None:
        if size:
            self._job.largest = max(self._job.largest, size)
            self.steps.append(self._allocate(group, size - bias, owner))
            if bias:
                self.steps.append(self._allocate(group, bias, owner))

    def free(self, group: str, size: int, count: int = 1, owner: object = None) -> None:
        if not size:
            return
        last, blocks = self.steps[-1] if self.steps else None, self._job.live[group, size // count]
        if (
            count == 1
            and group != GRADIENTS
            and isinstance(last, Allocate)
            and last.blocks is blocks
            and last.owner is owner
        ):
            self.steps[-1] = Transient(last.units)
        else:
            self.steps += [Release(blocks, owner)] * count

    def move(self, old: Storage, new: Storage) -> None:
        live = self._job.live
        self.steps.append(Move(live[old.group, old.size], old, live[new.group, old.size], new))

    def gemm(self, *, fused_bias: bool = False) -> None:
        workspace = self._job.workspace
        if workspace.passing:
            size = workspace.fused if fused_bias else workspace.passing
            self.steps.append(Transient(-(-size // MIN_BLOCK)))
        elif workspace.persistent:
            self.steps.append(MatrixProduct(self._job.live[self._thread, 0], -(-workspace.persistent // MIN_BLOCK)))

    def scratch(self, workspace: int, blocks: Sequence[int] = ()) -> None:
        sizes = [size for size in (workspace, *blocks) if size]
        if len(sizes) == 1:
            self.steps.append(Transient(self._job.units_of(sizes[0])))
            return
        self.steps += [self._allocate(SCRATCH, size, None) for size in sizes]
        self.steps += [Release(self._job.live[SCRATCH, size], None) for size in sizes]

    def sum_anew(self, size: int) -> None:
        """A parameter's gradient is another block from here on; the older of the two is let go."""
        scratch, gradients = self._allocate(SCRATCH, size, self), self._allocate(GRADIENTS, size, self)
        self.steps += [scratch, gradients, Release(gradients.blocks, None), Release(scratch.blocks, self)]

    def repeat(self, once: Callable[[], None], count: int, shared: Hashable | None) -> None:
        before, self.steps = self.steps, self._ran.get(shared, [])
        if not self.steps:
            once()
        if shared is not None:
            self._ran[shared] = self.steps
        self.steps = before + self.steps * count

    def _allocate(self, group: str, size: int, owner: object) -> Allocate:
        return Allocate(self._job.live[group, size], self._job.units_of(size), owner)
