"""What an allocator was asked for, read from a file: an event trace in JSON, or a PyTorch memory snapshot.

An event trace is `{"settings": {"total_memory", "env"}, "events": [{"op": "alloc", "id", "size"}, …], "columns",
"rows"}`; everything but `events` may be missing. Both forms may be gzipped; what is in the file decides, not its name.
"""

import json
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import shortened
from vramtui.estimators.allocator.figures import AllocatorFigures, from_rows
from vramtui.estimators.allocator.replay import COLUMNS, Event

SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Where PyTorch looks for its settings, in its order."""

Id = Annotated[int, Meta(ge=0)]
Size = Annotated[int, Meta(ge=0, lt=1 << 60)]


class AllocatorTrace(Struct, frozen=True, kw_only=True):
    """A stream of requests, and what is known of the allocator that served them.

    Attributes:
        events: what was asked for, in order.
        placed: requests for what was live already when the trace began.
        milliseconds: when each event was, since the first; None where that is not known.
        alloc_conf: the settings it ran under, as in `PYTORCH_CUDA_ALLOC_CONF`.
        total_memory: bytes that allocator could get, or None when nothing tells.
        recorded: its own figures, or None.
        rows: its counters after every event, in the order of `COLUMNS`, or None.
        warnings: what a reader of the figures should know, in sentences.
    """

    events: tuple[Event, ...]
    placed: tuple[Event, ...] = ()
    milliseconds: tuple[float, ...] | None = None
    alloc_conf: str = ""
    total_memory: int | None = None
    recorded: AllocatorFigures | None = None
    rows: tuple[tuple[int, ...], ...] | None = None
    warnings: tuple[str, ...] = ()


class _Settings(Struct, frozen=True):
    total_memory: Annotated[int, Meta(gt=0)] | None = None
    env: dict[str, str] = {}


class _Alloc(Struct, tag_field="op", tag="alloc", forbid_unknown_fields=True):
    id: Id
    size: Size
    stream: int = 0


class _Free(Struct, tag_field="op", tag="free", forbid_unknown_fields=True):
    id: Id


class _Complete(Struct, tag_field="op", tag="complete", forbid_unknown_fields=True):
    id: Id


class _RecordStream(Struct, tag_field="op", tag="record_stream", forbid_unknown_fields=True):
    id: Id
    stream: int


class _Synchronize(Struct, tag_field="op", tag="synchronize", forbid_unknown_fields=True):
    stream: int | None = None


class _EmptyCache(Struct, tag_field="op", tag="empty_cache", forbid_unknown_fields=True):
    pass


class _ResetPeaks(Struct, tag_field="op", tag="reset_peaks", forbid_unknown_fields=True):
    pass


class _Fraction(Struct, tag_field="op", tag="fraction", forbid_unknown_fields=True):
    value: Annotated[float, Meta(ge=0, le=1)]


_Operation = _Alloc | _Free | _Complete | _RecordStream | _Synchronize | _EmptyCache | _ResetPeaks | _Fraction


class _Document(Struct):
    events: list[_Operation]
    settings: _Settings = _Settings()
    columns: list[str] | None = None
    rows: list[list[int]] | None = None
    peak_allocated: int | None = None
    peak_reserved: int | None = None
    allocated_at_end: int | None = None
    reserved_at_end: int | None = None


def in_words(error: msgspec.ValidationError) -> str:
    """A validation error as a sentence: what is wrong, and where (`events[3].size`)."""
    what, _, place = shortened(str(error)).partition(" - at ")
    return f"{place.strip('`').removeprefix('$.')}: {what}" if place else what


def read_event_trace(name: str, content: bytes) -> AllocatorTrace:
    """An event trace.

    Args:
        name: what the file is called in sentences.
        content: a JSON object.

    Raises:
        UserError: it is none, or is not whole.
    """
    try:
        document = msgspec.json.decode(content, type=_Document)
    except msgspec.ValidationError as error:
        raise UserError(f"{name}: {in_words(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UserError(f"{name} is not whole JSON{_place(content)}") from None
    except RecursionError:
        raise UserError(f"{name} is nested too deeply") from None
    events = tuple(_event(entry) for entry in document.events)
    rows = _rows(name, document)
    _check_ids(name, events, rows)
    return AllocatorTrace(
        events=events,
        alloc_conf=next((document.settings.env[key] for key in SETTINGS if key in document.settings.env), ""),
        total_memory=document.settings.total_memory,
        recorded=from_rows(rows) if rows else _figures(document),
        rows=rows,
    )


def _event(entry: _Operation) -> Event:
    return Event(
        str(entry.__struct_config__.tag),
        getattr(entry, "id", 0),
        getattr(entry, "size", 0),
        getattr(entry, "stream", None),
        getattr(entry, "value", 0.0),
    )


def _check_ids(name: str, events: tuple[Event, ...], rows: tuple[tuple[int, ...], ...] | None) -> None:
    """A name stands for one block at a time, and is freed only once."""
    refused = COLUMNS.index("oom")
    live: set[int] = set()
    for number, event in enumerate(events):
        if event.op == "alloc":
            # A request that was refused leaves its name free to be tried again.
            if event.id in live and (rows is None or not rows[number][refused]):
                raise UserError(f"{name}: event {number} allocates id {event.id}, which is live already")
            live.add(event.id)
        elif event.op in {"free", "record_stream"}:
            if event.id not in live:
                raise UserError(f"{name}: event {number} is {event.op} of id {event.id}, which is not live")
            if event.op == "free":
                live.remove(event.id)


def _rows(name: str, document: _Document) -> tuple[tuple[int, ...], ...] | None:
    """The recorded rows in the order of `COLUMNS`; None where they are missing or lack a column."""
    if not document.rows or document.columns is None:
        return None
    if any(len(row) != len(document.columns) for row in document.rows):
        raise UserError(f"{name}: a row does not have one number for each of columns")
    if len(document.rows) != len(document.events):
        raise UserError(f"{name}: {len(document.rows)} rows for {len(document.events)} events")
    if not set(COLUMNS) <= set(document.columns):
        return None
    order = [document.columns.index(column) for column in COLUMNS]
    return tuple(tuple(row[number] for number in order) for row in document.rows)


def _figures(document: _Document) -> AllocatorFigures | None:
    """Figures told beside the events, where there are no rows."""
    figures = AllocatorFigures(
        peak_allocated=document.peak_allocated,
        peak_reserved=document.peak_reserved,
        allocated=document.allocated_at_end,
        reserved=document.reserved_at_end,
    )
    return None if figures == AllocatorFigures() else figures


def _place(content: bytes) -> str:
    """Where JSON breaks off, as `: line 3, column 7`."""
    try:
        json.loads(content)
    except json.JSONDecodeError as error:
        return f" (line {error.lineno}, column {error.colno})"
    except (ValueError, RecursionError):
        return ""
    return ""
