"""The caching allocator as a simulated job meets it: of the defaults, or as settings have it."""

from bisect import bisect_left, insort
from functools import lru_cache
from typing import Protocol

from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, SMALL_LIMIT, segment_bytes

SMALL_UNITS = SMALL_LIMIT // MIN_BLOCK
ADDRESS_BITS = 64
ADDRESS = (1 << ADDRESS_BITS) - 1
ENDLESS = 1 << 62


class JobHeap(Protocol):
    """What serves a job's requests, in units of 512 bytes; a block that is handed out is one number."""

    def malloc(self, units: int) -> int:
        """A block of at least one unit."""
        ...

    def free(self, block: int) -> None:
        """Hand a block back."""
        ...

    def borrow(self, units: int) -> None:
        """A block that is handed back before anything else happens."""
        ...

    @property
    def peak_allocated(self) -> int:
        """The most bytes that blocks took at once."""
        ...

    @property
    def peak_reserved(self) -> int:
        """The most bytes that segments took at once."""
        ...


class DefaultHeap:
    """The allocator with its defaults, on a card that never runs out.

    `estimators.allocator` is the whole of it and answers the same. What is left where no segment is ever given back is
    the best fit, what is split off, and the joining of free neighbours. A block, handed out or free, is one number: its
    size above its address, both in units of 512 bytes. So a sorted list of the free ones has the order of best fit:
    between equal sizes the older segment, whose address is the lower one.
    """

    def __init__(self) -> None:
        self._small: list[int] = []
        self._large: list[int] = []
        # Of free blocks: sizes by where they start, and starts by where they end.
        self._sizes: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._end = self._allocated = self._peak_allocated = self._reserved = 0

    def malloc(self, units: int) -> int:
        """A block of at least one unit."""
        free, least = (self._small, 1) if units <= SMALL_UNITS else (self._large, SMALL_UNITS + 1)
        at = bisect_left(free, units << ADDRESS_BITS)
        if at < len(free):
            block = free.pop(at)
            whole, address = block >> ADDRESS_BITS, block & ADDRESS
            del self._sizes[address], self._starts[address + whole]
        else:
            whole, address = _segment_units(units), self._end
            self._reserved += whole
            self._end += whole + 1  # segments are never joined
        rest = whole - units
        if rest >= least:
            whole, start = units, address + units
            self._sizes[start] = rest
            self._starts[start + rest] = start
            insort(free, rest << ADDRESS_BITS | start)
        self._allocated = allocated = self._allocated + whole
        if allocated > self._peak_allocated:  # noqa: PLR1730 - no `max`: a call at every request
            self._peak_allocated = allocated
        return whole << ADDRESS_BITS | address

    def free(self, block: int) -> None:
        """Hand a block back."""
        size, address = block >> ADDRESS_BITS, block & ADDRESS
        self._allocated -= size
        free = self._small if size <= SMALL_UNITS else self._large
        end = address + size
        after = self._sizes.pop(end, 0)
        if after:
            del free[bisect_left(free, after << ADDRESS_BITS | end)]
            end += after
        start = self._starts.pop(address, None)
        if start is not None:
            del free[bisect_left(free, (address - start) << ADDRESS_BITS | start)]
            address = start
        size = end - address
        self._sizes[address] = size
        self._starts[end] = address
        insort(free, size << ADDRESS_BITS | address)

    def borrow(self, units: int) -> None:
        """A block that is handed back before anything else happens: what it is cut from is whole again."""
        free, least = (self._small, 1) if units <= SMALL_UNITS else (self._large, SMALL_UNITS + 1)
        at = bisect_left(free, units << ADDRESS_BITS)
        if at == len(free):
            self.free(self.malloc(units))
            return
        whole = free[at] >> ADDRESS_BITS
        allocated = self._allocated + (units if whole - units >= least else whole)
        if allocated > self._peak_allocated:  # noqa: PLR1730 - as `malloc`
            self._peak_allocated = allocated

    @property
    def peak_allocated(self) -> int:
        """The most bytes that blocks took at once."""
        return self._peak_allocated * MIN_BLOCK

    @property
    def peak_reserved(self) -> int:
        """The most bytes that segments took at once; none is given back."""
        return self._reserved * MIN_BLOCK


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
        self.free = self._allocator.free

    def malloc(self, units: int) -> int:
        """A block of at least one unit.

        Raises:
            AllocatorOutOfMemoryError: it does not fit.
        """
        return self._allocator.malloc(units * MIN_BLOCK)

    def borrow(self, units: int) -> None:
        """A block that is handed back before anything else happens.

        Raises:
            AllocatorOutOfMemory: it does not fit.
        """
        self.free(self.malloc(units))

    @property
    def peak_allocated(self) -> int:
        """The most bytes that blocks took at once."""
        return self._allocator.stats.peak_allocated

    @property
    def peak_reserved(self) -> int:
        """The most bytes that segments took at once."""
        return self._allocator.stats.peak_reserved


@lru_cache(maxsize=1024)
def _segment_units(units: int) -> int:
    return segment_bytes(units * MIN_BLOCK) // MIN_BLOCK
