"""A PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`) as a stream of requests.

The trace is a ring: it may begin when much was live already. Such blocks are found in the segments at the end and in
frees of what the trace never allocated; they are placed first, in order of address.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.estimators.allocator import AllocatorConfig, Event
from vramtui.estimators.allocator.figures import AllocatorFigures
from vramtui.records.allocator_traces.plain_files import load_plain
from vramtui.records.allocator_traces.snapshot_events import Requests, TraceEntry
from vramtui.records.allocator_traces.trace import SETTINGS, AllocatorTrace, Size, in_words

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


def _remarks(requests: Requests, placed: Sequence[Event], held: int, segments: Sequence[SnapshotSegment]) -> list[str]:
    """What the replay cannot know, in sentences."""
    remarks = []
    if placed:
        size = format_bytes(sum(event.size for event in placed))
        remarks.append(
            f"the trace begins with {_count_of(len(placed), 'block')} ({size}) already live: they are placed first, "
            "and what was cached then is not known, so the peaks are those of a tidier start"
        )
    elif held > 0:
        remarks.append(f"the trace begins with {format_bytes(held)} cached, which the replay does not have")
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
    told = [number for number, entries in enumerate(traces) if entries]
    if not told:
        raise UserError(
            f"{name} holds no events; they are kept only after torch.cuda.memory._record_memory_history() was called"
        )
    if gpu is not None:
        if gpu not in told:
            raise UserError(f"{name} holds no events of GPU {gpu}, only of {', '.join(map(str, told))}")
        return gpu, []
    chosen = max(told, key=lambda number: len(traces[number]))
    others = len(told) - 1
    return chosen, [f"GPU {chosen} of {len(told)} with events is followed; --gpu picks another"] if others else []


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
    found = dict(requests.unborn)
    for segment in segments:
        address = segment.address
        for block in segment.blocks:
            here = address if block.address is None else block.address
            if block.state == ALLOCATED and here not in requests.live and block.size > 0:
                size = block.size if block.requested_size is None else block.requested_size
                stream = requests.stream(segment.stream, segment.segment_pool_id)
                found[here, requests.next_id()] = (size, stream)
            address += block.size
    return [Event("alloc", number, size, stream) for (_, number), (size, stream) in sorted(found.items()) if size > 0]
