"""A PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`) as a stream of requests.

The trace is a ring: it may begin when much was live already. Such blocks are found in the segments at the end and in
frees of what the trace never allocated; they are placed first, in order of address.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.allocator.figures import AllocatorFigures
from vramtui.estimators.allocator.replay import Event
from vramtui.records.allocator_traces.plain_files import load_plain, read_bytes
from vramtui.records.allocator_traces.trace import SETTINGS, AllocatorTrace, Size, in_words, read_event_trace

GROWS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


class TraceEntry(Struct):
    """An event of the allocator's history.

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


ALLOCATED = "active_allocated"


class SnapshotBlock(Struct):
    """One block of a segment. Old snapshots tell neither its address nor what was asked for."""

    size: Size
    state: str
    requested_size: Size | None = None
    address: int | None = None


class SnapshotSegment(Struct):
    """Memory from the device, as it was when the snapshot was taken."""

    address: int
    total_size: Size
    device: int = 0
    stream: int = 0
    segment_pool_id: tuple[int, int] = (0, 0)
    blocks: list[SnapshotBlock] = []


class MemorySnapshot(Struct):
    """What of a snapshot matters here; the stacks are left out."""

    segments: list[SnapshotSegment]
    device_traces: list[list[TraceEntry]] = []
    allocator_settings: dict[str, Any] = {}


def _entries_in(plain: object) -> int:
    """Blocks and events, counted as often as they are referred to: a pickle may have one list in a thousand places."""
    if not isinstance(plain, dict):
        return 0
    segments, traces = plain.get("segments"), plain.get("device_traces")
    lists = [one.get("blocks") for one in segments if isinstance(one, dict)] if isinstance(segments, list) else []
    lists += traces if isinstance(traces, list) else []
    return sum(len(one) for one in lists if isinstance(one, list))


def read_snapshot(name: str, content: bytes, gpu: int | None) -> AllocatorTrace:
    """Turn a pickled snapshot into a trace.

    Args:
        name: the file's, for sentences.
        content: the pickle.
        gpu: the device; without it the one with the most events.

    Raises:
        UserError: it is no snapshot, or tells no events for the device.
    """
    plain = load_plain(name, content)
    if isinstance(plain, list):
        plain = {"segments": plain}
    if _entries_in(plain) > len(content):
        raise UserError(f"{name} is not a memory snapshot: it has more entries than bytes")
    try:
        snapshot = msgspec.convert(plain, type=MemorySnapshot)
    except msgspec.ValidationError as error:
        raise UserError(f"{name} is not a memory snapshot: {in_words(error)}") from None
    except (UnicodeEncodeError, RecursionError):
        # A name that is no Unicode, or a list that holds itself: both can stand in a pickle.
        raise UserError(f"{name} is not a memory snapshot: it holds what is no text, or nothing but itself") from None
    chosen, warnings = _choose(name, snapshot.device_traces, gpu)
    entries = snapshot.device_traces[chosen]
    segments = [segment for segment in snapshot.segments if segment.device == chosen]
    config, alloc_conf = _settings(snapshot.allocator_settings, warnings)
    held_at_start, peak, total = _reserved(entries, segments)
    requests = Requests(
        total_memory=total,
        reserved=held_at_start,
        # These two also give segments back on their own, which is then no sign of `empty_cache`.
        releases_itself=config.max_split_size is not None or config.garbage_collection_threshold > 0,
    )
    requests.run(entries)
    placed = _placed(requests, segments)
    warnings += _remarks(requests, placed, held_at_start, segments)
    return AllocatorTrace(
        events=tuple(requests.events),
        placed=tuple(placed),
        milliseconds=_milliseconds(requests.times),
        alloc_conf=alloc_conf,
        total_memory=total,
        recorded=AllocatorFigures(
            peak_reserved=peak,
            allocated=sum(block.size for s in segments for block in s.blocks if block.state == ALLOCATED),
            reserved=sum(segment.total_size for segment in segments),
            ooms=sum(entry.action == "oom" for entry in entries),
        ),
        warnings=tuple(warnings),
    )


def _milliseconds(times: Sequence[int | None]) -> tuple[float, ...] | None:
    """Since the first request; None where a request has no time."""
    known = [time for time in times if time is not None]
    if not known or len(known) < len(times):
        return None
    return tuple((time - known[0]) / 1000 for time in known)


def _remarks(
    requests: Requests, placed: Sequence[Event], cached: int, segments: Sequence[SnapshotSegment]
) -> list[str]:
    """What the replay cannot know, in sentences."""
    remarks = []
    if placed:
        size = format_bytes(sum(event.size for event in placed))
        remarks.append(
            f"the trace begins with {_count_of(len(placed), 'block')} ({size}) already live: they are placed first, "
            "and what was cached then is not known, so the peaks are those of a tidier start"
        )
    elif cached > 0:
        remarks.append(f"the trace begins with {format_bytes(cached)} cached, which the replay does not have")
    if requests.guessed:
        remarks.append(
            f"segments were given back just before others were taken ({_count_of(requests.guessed, 'time')}): this is "
            "taken for empty_cache, though it may have been a lack of memory"
        )
    if any(segment.segment_pool_id != (0, 0) for segment in segments):
        remarks.append("private pools (CUDA graphs) are replayed as streams of their own, freed like any other")
    return remarks


def _count_of(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _choose(name: str, traces: Sequence[Sequence[TraceEntry]], gpu: int | None) -> tuple[int, list[str]]:
    """The device to follow, and a word where there are others."""
    used = [number for number, entries in enumerate(traces) if entries]
    if not used:
        raise UserError(
            f"{name} holds no events; they are kept only after torch.cuda.memory._record_memory_history() was called"
        )
    if gpu is not None:
        if gpu not in used:
            raise UserError(f"{name} holds no events of GPU {gpu}, only of {', '.join(map(str, used))}")
        return gpu, []
    chosen = max(used, key=lambda number: len(traces[number]))
    others = len(used) - 1
    return chosen, [f"GPU {chosen} of {len(used)} with events is followed; --gpu picks another"] if others else []


def _settings(settings: dict[str, Any], warnings: list[str]) -> tuple[AllocatorConfig, str]:
    """The settings of the recorded run; PyTorch's defaults, with a word, where they are beyond the simulation."""
    text = next((settings[key] for key in SETTINGS if isinstance(settings.get(key), str)), "")
    if not text and settings.get("expandable_segments") is True:
        text = "expandable_segments:True"
    try:
        return AllocatorConfig.parse(text), text
    except UserError as error:
        warnings.append(f"the recorded settings are not followed: {error}")
        return AllocatorConfig(), ""


def _reserved(entries: Sequence[TraceEntry], segments: Sequence[SnapshotSegment]) -> tuple[int, int, int | None]:
    """Bytes reserved when the trace began, at most, and the device's bytes where a refused request tells them."""
    end = sum(segment.total_size for segment in segments)
    start = end - sum(entry.reserved_change for entry in entries)
    now, peak, total = start, start, None
    for entry in entries:
        now += entry.reserved_change
        peak = max(peak, now)
        if entry.action == "oom" and entry.device_free is not None:
            total = max(total or 0, now + entry.device_free)
    return start, peak, total


def _placed(requests: Requests, segments: Sequence[SnapshotSegment]) -> list[Event]:
    """Requests for what was live before the first event: freed without having been allocated, or never touched."""
    places = dict(requests.unborn)
    for segment in segments:
        address = segment.address
        for block in segment.blocks:
            here = address if block.address is None else block.address
            if block.state == ALLOCATED and here not in requests.live and block.size > 0:
                size = block.size if block.requested_size is None else block.requested_size
                stream = requests.stream(segment.stream, segment.segment_pool_id)
                places[here, requests.next_id()] = (size, stream)
            address += block.size
    return [Event("alloc", number, size, stream) for (_, number), (size, stream) in sorted(places.items()) if size > 0]


def read_allocator_trace(path: Path, gpu: int | None = None) -> AllocatorTrace:
    """Read an event trace or a memory snapshot.

    Args:
        path: the file.
        gpu: which device of a snapshot; without it the one with the most events.

    Raises:
        UserError: it cannot be read, or is neither, or is not whole.
    """
    name = printable(str(path))
    try:
        content = read_bytes(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not a whole gzip file"
        raise UserError(f"{name} cannot be read: {reason}") from None
    if content[:1] == b"\x80":
        return read_snapshot(name, content, gpu)
    if content.lstrip()[:1] != b"{":
        raise UserError(f"{name} is neither an event trace (a JSON object) nor a memory snapshot (a pickle)")
    if gpu is not None:
        raise UserError(f"{name} is an event trace, of one GPU; --gpu is for memory snapshots")
    return read_event_trace(name, content)
