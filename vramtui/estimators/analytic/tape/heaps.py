"""The caching allocator as a simulated job meets it, and what it is asked: of the defaults, or as settings have it."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import msgspec

from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, SMALL_LIMIT, segment_bytes

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
    """A matrix product, the first of which takes its thread's workspace: so many units, unless `blocks` has them."""

    blocks: list[Held]
    units: int


Step = Allocate | Release | Transient | Move | MatrixProduct


class JobHeap(Protocol):
    """What serves a job's requests."""

    def play(self, steps: Iterable[Step]) -> None:
        """Serve them in their order."""
        ...

    @property
    def peak_allocated(self) -> int:
        """The most bytes that blocks took at once."""
        ...

    @property
    def peak_reserved(self) -> int:
        """The most bytes that segments took at once."""
        ...


def pop_block(blocks: list[Held], owner: object) -> Held:
    """The owner's newest block, or the newest of all where it has none, as a gradient that another block handed on."""
    at = len(blocks) - 1
    while at >= 0 and blocks[at][2] is not owner:
        at -= 1
    return blocks.pop(at)


class _FreeBlocks:
    """The free blocks of a pool: where those of each size start, in order; and the sizes, some of which have none left.

    Args:
        least: units of the smallest rest that is split off.
    """

    __slots__ = ("least", "sizes", "starts")

    def __init__(self, least: int) -> None:
        self.starts: dict[int, list[int]] = {}
        self.sizes: list[int] = []
        self.least = least

    def add(self, size: int, start: int) -> None:
        """Put a block in its place."""
        starts = self.starts.get(size)
        if starts is None:
            self.starts[size] = [start]
            insort(self.sizes, size)
        else:
            insort(starts, start)

    def remove(self, size: int, start: int) -> None:
        """Take a block out."""
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
        """Serve them in their order."""
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
        """The most bytes that blocks took at once."""
        return self._peak_allocated * MIN_BLOCK

    @property
    def peak_reserved(self) -> int:
        """The most bytes that segments took at once; none is given back."""
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
        outside: bytes of it that are taken for what is no allocation.
    """

    def __init__(self, config: AllocatorConfig, total: int = ENDLESS, outside: int = 0) -> None:
        self._allocator = CachingAllocator(total, config)
        self._allocator.hold_outside(outside)

    def play(self, steps: Iterable[Step]) -> None:
        """Serve them in their order.

        Raises:
            AllocatorOutOfMemoryError: one does not fit.
        """
        for step in steps:
            match step:
                case Allocate():
                    step.blocks.append((step.units, self._malloc(step.units), step.owner))
                case Release():
                    if step.blocks:
                        self._allocator.free(pop_block(step.blocks, step.owner)[1])
                case Transient():
                    self._allocator.free(self._malloc(step.units))
                case Move():
                    step.others.append((*pop_block(step.blocks, step.old)[:2], step.new))
                case MatrixProduct():
                    if not step.blocks:
                        step.blocks.append((step.units, self._malloc(step.units), None))

    @property
    def peak_allocated(self) -> int:
        """The most bytes that blocks took at once."""
        return self._allocator.stats.peak_allocated

    @property
    def peak_reserved(self) -> int:
        """The most bytes that segments took at once."""
        return self._allocator.stats.peak_reserved

    def _malloc(self, units: int) -> int:
        return self._allocator.malloc(units * MIN_BLOCK)


@lru_cache(maxsize=1024)
def _segment_units(units: int) -> int:
    return segment_bytes(units * MIN_BLOCK) // MIN_BLOCK
