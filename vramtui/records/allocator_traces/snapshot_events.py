"""The events of a memory snapshot's device trace, turned into requests that another allocator can serve."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from vramtui.estimators.allocator import Event

GROWS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


class TraceEntry(Struct):
    """One event.

    Attributes:
        addr: missing where a request was refused.
        device_free: only there then.
        time_us: microseconds since the epoch; snapshots of before PyTorch 2.2 have none.
    """

    action: str
    size: Annotated[int, Meta(ge=0, lt=1 << 60)] = 0
    addr: int | None = None
    stream: int = 0
    device_free: int | None = None
    pool_id: tuple[int, int] = (0, 0)
    time_us: int | None = None

    @property
    def reserved_change(self) -> int:
        """How the memory held from the device changes."""
        return GROWS.get(self.action, 0) * self.size


class Requests:
    """Collects requests from a trace.

    Args:
        total_memory: the device's bytes, or None when unknown.
        reserved: bytes held from the device before the first event.
        releases_itself: the settings make the allocator release segments before memory runs out.

    Attributes:
        events: the requests.
        times: when each was made, in microseconds of the snapshot's clock, or None.
        live: the id of the block at each address that is live at the end.
        unborn: (address, id) of blocks that were freed but not allocated in the trace, with their size and stream.
        guessed: how often it could not be told whether `empty_cache` or a lack of memory released segments.
    """

    def __init__(self, *, total_memory: int | None, reserved: int, releases_itself: bool) -> None:
        self.events: list[Event] = []
        self.times: list[int | None] = []
        self.live: dict[int, int] = {}
        self.unborn: dict[tuple[int, int], tuple[int, int]] = {}
        self._total = total_memory
        self._reserved = reserved
        self._before_release = reserved
        self._releasing = False
        self._releases_itself = releases_itself
        self.guessed = 0
        self._waiting: dict[int, int] = {}
        self._streams: dict[tuple[int, tuple[int, int]], int] = {}
        self._born: set[int] = set()
        self._count = 0

    def run(self, entries: Sequence[TraceEntry]) -> None:
        """Take a whole trace."""
        takes = {"alloc": self._alloc, "free_completed": self._completed, "oom": self._refused}
        for number, entry in enumerate(entries):
            self._watch_segments(entry)
            if entry.action == "free_requested":
                self._free(entry, entries[number + 1] if number + 1 < len(entries) else None)
            elif entry.action in takes:
                takes[entry.action](entry)
            self._note_time(entry)
        if self._releasing:
            self.events.append(Event("empty_cache"))
            self._note_time(entries[-1])

    def _note_time(self, entry: TraceEntry) -> None:
        """The requests that came of `entry` were made when it was."""
        self.times += [entry.time_us] * (len(self.events) - len(self.times))

    def next_id(self) -> int:
        """A name that no block has yet."""
        self._count += 1
        return self._count

    def stream(self, stream: int, pool: tuple[int, int]) -> int:
        """A number for a stream within a pool: neither shares its blocks with another."""
        return self._streams.setdefault((stream, pool), len(self._streams))

    def _watch_segments(self, entry: TraceEntry) -> None:
        """Follow what is held from the device, and notice when segments were given back on request."""
        if GROWS.get(entry.action, 0) < 0:
            if not self._releasing:
                self._before_release = self._reserved
            self._releasing = True
        elif self._releasing:
            self._releasing = False
            if self._was_asked(entry):
                self.events.append(Event("empty_cache"))
        self._reserved += entry.reserved_change

    def _was_asked(self, following: TraceEntry) -> bool:
        """Whether released segments were released by `empty_cache`, going by what came right after.

        The allocator itself only releases to make room for the segment that it then takes or is refused.
        """
        if following.action == "oom":
            return False
        if following.action not in {"segment_alloc", "segment_map"}:
            return True
        if self._releases_itself:
            return False
        if self._total is None:
            self.guessed += 1
            return True
        return self._before_release + following.size <= self._total

    def _alloc(self, entry: TraceEntry) -> None:
        number = self.next_id()
        if entry.addr is not None:
            self.live[entry.addr] = number
        self._born.add(number)
        self.events.append(Event("alloc", number, entry.size, self.stream(entry.stream, entry.pool_id)))

    def _refused(self, entry: TraceEntry) -> None:
        self.events.append(Event("attempt", 0, entry.size, self.stream(entry.stream, entry.pool_id)))

    def _free(self, entry: TraceEntry, following: TraceEntry | None) -> None:
        if entry.addr is None:
            return
        number = self._block_id(entry)
        del self.live[entry.addr]
        done = following is not None and following.action == "free_completed" and following.addr == entry.addr
        if not done:
            # It is not known which stream it waits for, only that it does: one that nothing else uses stands for it.
            self.events.append(Event("record_stream", number, stream=-1))
        self.events.append(Event("free", number))
        self._waiting[entry.addr] = number

    def _completed(self, entry: TraceEntry) -> None:
        if entry.addr is None:
            return
        number = self._waiting.pop(entry.addr, None)
        if number is None:
            # Freed before the trace began, and only now let go.
            number = self._block_id(entry)
            del self.live[entry.addr]
            self.events.append(Event("free", number))
        else:
            self.events.append(Event("complete", number))

    def _block_id(self, entry: TraceEntry) -> int:
        """The id of the block at an entry's address; one the trace did not see before was live from the start."""
        assert entry.addr is not None
        number = self.live.get(entry.addr)
        if number is None:
            number = self.live[entry.addr] = self.next_id()
            self.unborn[entry.addr, number] = (entry.size, self.stream(entry.stream, entry.pool_id))
        return number
