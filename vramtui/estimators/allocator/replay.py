"""Runs a stream of requests through an allocator and keeps its counters after every event."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.failure import AllocatorOutOfMemoryError

COLUMNS = (
    "allocated", "reserved", "active", "requested", "inactive_split", "segments", "active_blocks",
    "inactive_split_blocks", "peak_allocated", "peak_reserved", "retries", "oom",
)  # fmt: skip
"""The counters of a row, as `Stats` has them; only `oom` is the event's own: how many requests it saw refused."""

Row = tuple[int, ...]


class Event(NamedTuple):
    """One thing that happened to an allocator.

    Attributes:
        op: a key of `OPERATIONS`.
        id: the trace's own name for a block, for what concerns one.
        size: bytes asked for.
        stream: the stream of a request, of a use, or (None: all) of a synchronisation.
        value: the share of the device, for `fraction`.
    """

    op: str
    id: int = 0
    size: int = 0
    stream: int | None = None
    value: float = 0.0


@dataclass(frozen=True)
class Refusal:
    """A request that found no memory: the number of its event, and what the allocator said."""

    event: int
    error: AllocatorOutOfMemoryError


class ReservedPeak(NamedTuple):
    """When most was reserved for the first time: the event's number (-1 before the first), and what was held then."""

    event: int
    allocated: int
    reserved: int

    @property
    def fragmentation(self) -> float:
        """The share of what was reserved that no block used, at that one moment; 0 when nothing was reserved."""
        return (self.reserved - self.allocated) / self.reserved if self.reserved else 0.0


@dataclass(frozen=True)
class AllocatorReplay:
    """What a trace did to one allocator.

    Attributes:
        rows: the counters after every event, as in `COLUMNS`; empty where they were not asked for.
        refusals: the requests refused.
        peak: the moment at which most was reserved.
        allocator: the allocator as it was left.
    """

    rows: tuple[Row, ...]
    refusals: tuple[Refusal, ...]
    peak: ReservedPeak
    allocator: CachingAllocator


class _Player:
    """Keeps which block each of the trace's names stands for."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.allocator = allocator
        self.blocks: dict[int, int] = {}
        self.freed: dict[int, int] = {}

    def alloc(self, event: Event) -> None:
        self.blocks[event.id] = self.allocator.malloc(event.size, event.stream or 0)

    def attempt(self, event: Event) -> None:
        self.allocator.free(self.allocator.malloc(event.size, event.stream or 0))

    def free(self, event: Event) -> None:
        # The request for this name may have been refused here and served where the trace was made.
        block = self.blocks.pop(event.id, None)
        if block is not None:
            self.freed[event.id] = block
            self.allocator.free(block)

    def complete(self, event: Event) -> None:
        block = self.freed.pop(event.id, None)
        if block is not None:
            self.allocator.complete(block)

    def record_stream(self, event: Event) -> None:
        block = self.blocks.get(event.id)
        if block is not None:
            self.allocator.record_stream(block, event.stream or 0)

    def synchronize(self, event: Event) -> None:
        self.allocator.synchronize(event.stream)

    def empty_cache(self, _event: Event) -> None:
        self.allocator.empty_cache()

    def reset_peaks(self, _event: Event) -> None:
        self.allocator.reset_peaks()

    def fraction(self, event: Event) -> None:
        self.allocator.set_memory_fraction(event.value)

    def operations(self) -> dict[str, Callable[[Event], None]]:
        return {name: getattr(self, name) for name in OPERATIONS}


OPERATIONS = (
    "alloc",
    "attempt",
    "complete",
    "empty_cache",
    "fraction",
    "free",
    "record_stream",
    "reset_peaks",
    "synchronize",
)
"""What may happen. `attempt` is a request whose block, if it gets one, goes at once; `complete` says that a freed
block waits for no stream any more."""


def replay(
    events: Iterable[Event], allocator: CachingAllocator, placed: Iterable[Event] = (), *, keep_rows: bool = True
) -> AllocatorReplay:
    """Run a trace.

    Args:
        events: the trace; an `op` that is not in `OPERATIONS` is a KeyError.
        allocator: where to; it keeps what it already holds.
        placed: what happened before the trace's first event; it gets no rows and no part in the peaks' history.
        keep_rows: keep the counters after every event.
    """
    operations = _Player(allocator).operations()
    stats = allocator.stats
    rows: list[Row] = []
    refusals: list[Refusal] = []
    for event in placed:
        error = _refused(operations[event.op], event)
        if error is not None:
            refusals.append(Refusal(-1, error))
    allocator.reset_peaks()
    peak = ReservedPeak(-1, stats.allocated, stats.reserved)
    for number, event in enumerate(events):
        error = _refused(operations[event.op], event)
        if error is not None:
            refusals.append(Refusal(number, error))
        if stats.reserved > peak.reserved or event.op == "reset_peaks":
            peak = ReservedPeak(number, stats.allocated, stats.reserved)
        if keep_rows:
            rows.append((
                stats.allocated, stats.reserved, stats.active, stats.requested, stats.inactive_split, stats.segments,
                stats.active_blocks, stats.inactive_split_blocks, stats.peak_allocated, stats.peak_reserved,
                stats.retries, 0 if error is None else 1,
            ))  # fmt: skip
    return AllocatorReplay(tuple(rows), tuple(refusals), peak, allocator)


def _refused(operation: Callable[[Event], None], event: Event) -> AllocatorOutOfMemoryError | None:
    try:
        operation(event)
    except AllocatorOutOfMemoryError as error:
        return error
    return None
