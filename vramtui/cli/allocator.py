"""`vramtui allocator`: what another setting of PyTorch's allocator would have done with the same requests."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from vramtui.cli.common.console import print_table, text_width
from vramtui.cli.common.exit_codes import NO, exit_on_user_error
from vramtui.cli.options.command_options import command_of
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, asked_size, format_bytes, unit_of

if TYPE_CHECKING:
    from vramtui.estimators.allocator.figures import AllocatorFigures
    from vramtui.estimators.allocator.replay import AllocatorReplay
    from vramtui.records.allocator_traces.trace import AllocatorTrace

UNLIMITED = 1 << 50
"""Stands for a device of unknown size: more than any card has, and few enough bytes to stay a sum of segments."""


PLOT_ROWS = 20
PLOT_POINTS = 4000
"""Two dots a column, each with its first and its largest value: more than any terminal shows."""
WIDEST_PLOT = 200
TICKS_IN_WHOLES = 50


class SettingColumn(NamedTuple):
    """One way the requests were, or would have been, served."""

    title: str
    alloc_conf: str
    figures: "AllocatorFigures"
    replay: "AllocatorReplay | None"


@dataclass(frozen=True, kw_only=True)
class AllocatorOptions:
    """What `vramtui allocator` takes."""

    file: Annotated[Path, typer.Argument(help="An event trace (JSON) or a memory snapshot (pickle), plain or .gz.")]
    alloc_conf: Annotated[
        list[str] | None,
        typer.Option("--alloc-conf", help="Another PYTORCH_CUDA_ALLOC_CONF to try; may be given again."),
    ] = None
    memory: Annotated[str | None, typer.Option(help="The device's memory, as 24GiB; else what the file says.")] = None
    gpu: Annotated[int | None, typer.Option(min=0, metavar="INDEX", help="Which GPU of a memory snapshot.")] = None
    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False
    rows: Annotated[bool, typer.Option("--rows", help="With --json: the counters after every event.")] = False
    plot: Annotated[
        bool, typer.Option("--plot", help="Also draw allocated and reserved, over milliseconds where they are known.")
    ] = False


@command_of(AllocatorOptions)
def allocator(options: AllocatorOptions) -> None:
    """What another allocator setting would have done with the requests of a recorded job.

    Ends with 1 where a setting that was asked about refuses more requests than the recording does.
    """
    with exit_on_user_error():
        refused = _compare(options)
    if refused:
        raise typer.Exit(NO)


def _compare(options: AllocatorOptions) -> bool:
    from vramtui.records.allocator_traces.memory_snapshot import read_allocator_trace

    if options.rows and not options.json:
        raise UserError("--rows goes with --json")
    if options.plot and options.json:
        raise UserError("--plot is for people; --json --rows has the same figures")
    total = None if options.memory is None else asked_size(options.memory)
    if total == 0:
        raise UserError("--memory 0 leaves nothing to allocate from")
    trace = read_allocator_trace(options.file, options.gpu)
    settings, room = options.alloc_conf or [], total or trace.total_memory or UNLIMITED
    columns = _columns(trace, settings, room, keep_rows=options.rows or options.plot)
    for warning in trace.warnings:
        sys.stderr.write(f"vramtui: {warning}\n")
    if options.json:
        _print_document(trace, columns, rows=options.rows, total=total or trace.total_memory)
    else:
        _print_columns(trace, columns, total or trace.total_memory)
    if options.plot:
        _print_plot(trace, columns[0])
    suffered = (trace.recorded.ooms if trace.recorded else None) or 0
    asked = columns[: max(1, len(settings))]
    return any((column.figures.ooms or 0) > suffered for column in asked)


def _columns(trace: "AllocatorTrace", settings: list[str], total: int, *, keep_rows: bool) -> list[SettingColumn]:
    """The simulated columns: what was asked for first, then what it is to be compared with."""
    from vramtui.estimators.allocator.caching import CachingAllocator
    from vramtui.estimators.allocator.config import AllocatorConfig
    from vramtui.estimators.allocator.figures import simulated
    from vramtui.estimators.allocator.replay import replay

    wanted = [(printable(text), text) for text in settings]
    own = ("as recorded" if trace.recorded else "as in the file", trace.alloc_conf)
    wanted.append(own if trace.alloc_conf else ("default", ""))
    if trace.alloc_conf:
        wanted.append(("default", ""))
    configs = [(title, text, AllocatorConfig.parse(text)) for title, text in wanted]
    columns = []
    for number, (title, text, config) in enumerate(configs):
        result = replay(
            trace.events, CachingAllocator(total, config), trace.placed, keep_rows=keep_rows and number == 0
        )
        columns.append(SettingColumn(title, text, simulated(result), result))
    return columns


def _print_document(trace: "AllocatorTrace", columns: list[SettingColumn], *, rows: bool, total: int | None) -> None:
    from vramtui.estimators.allocator.replay import COLUMNS

    document: dict[str, object] = {
        "schema": 1,
        "total_memory": total,
        "events": len(trace.events),
        "simulated": _column_document(columns[0]),
        "recorded": trace.recorded.as_dict() if trace.recorded else None,
        "others": [_column_document(column) for column in columns[1:]],
        "warnings": list(trace.warnings),
    }
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    if rows and columns[0].replay is not None:
        # A row is a line: they are many, and a person may still look.
        lines = ",\n    ".join(msgspec.json.encode(row).decode() for row in columns[0].replay.rows)
        names = msgspec.json.encode(COLUMNS).decode()
        text = f'{text[:-2]},\n  "columns": {names},\n  "rows": [\n    {lines}\n  ]\n}}'
    sys.stdout.write(text + "\n")


def _column_document(column: SettingColumn) -> dict[str, object]:
    return {"alloc_conf": column.alloc_conf, **column.figures.as_dict(), "first_refusal": _refusal(column)}


def _refusal(column: SettingColumn) -> dict[str, int] | None:
    """The first refused request: the number of its event (from 0; -1 before the first), and its bytes."""
    if column.replay is None or not column.replay.refusals:
        return None
    first = column.replay.refusals[0]
    error = first.error
    return {
        "event": first.event,
        "requested": error.requested,
        "segment_size": error.segment_size,
        "free": error.free,
        "allocated": error.allocated,
        "reserved": error.reserved,
    }


def _print_columns(trace: "AllocatorTrace", columns: list[SettingColumn], total: int | None) -> None:
    shown = list(reversed(columns))
    if trace.recorded is not None:
        shown.insert(0, SettingColumn("recorded", trace.alloc_conf, trace.recorded, None))
    lines: list[tuple[str, ...]] = [
        ("peak reserved", *(format_bytes(c.figures.peak_reserved, 2) for c in shown)),
        ("peak allocated", *(format_bytes(c.figures.peak_allocated, 2) for c in shown)),
        ("unused at the peak", *(format_bytes(c.figures.unused_at_peak, 2) for c in shown)),
        ("fragmentation", *(_share(c.figures.fragmentation) for c in shown)),
        ("reserved at the end", *(format_bytes(c.figures.reserved, 2) for c in shown)),
        ("out of memory", *(_times(c.figures.ooms, "no") for c in shown)),
        ("retries", *(_times(c.figures.retries, "none") for c in shown)),
    ]
    print_table(("", *(column.title for column in shown)), lines, right=range(1, len(shown) + 1))
    size = "a device without limit" if total is None else format_bytes(total, 2)
    sys.stdout.write(
        f"{len(trace.events)} events on {size}. Fragmentation: the share of what was reserved that no block used, at\n"
        "the first moment at which most was reserved.\n"
    )
    for column in shown:
        if column.replay is not None and column.replay.refusals:
            first = column.replay.refusals[0]
            sys.stdout.write(f"{column.title}: event {first.event}: {first.error}\n")


def _print_plot(trace: "AllocatorTrace", column: SettingColumn) -> None:
    """Allocated and reserved bytes after each event of the first column asked for."""
    from vramtui.cli.common.plot import colour_wanted, drawing, finished
    from vramtui.estimators.allocator.replay import COLUMNS

    rows = column.replay.rows if column.replay else ()
    if not rows:
        sys.stdout.write("There is no event to draw.\n")
        return
    allocated, reserved = COLUMNS.index("allocated"), COLUMNS.index("reserved")
    unit, name = unit_of(max(row[reserved] for row in rows))
    over = "milliseconds" if trace.milliseconds else "events"
    places = trace.milliseconds or range(len(rows))
    colour = colour_wanted()
    title = f"{column.title}: allocated below reserved, {name}, over {over}"
    figure = drawing(title, min(text_width(), WIDEST_PLOT), PLOT_ROWS, colour=colour)
    for counter in (reserved, allocated):
        xs, ys = thinned(places, [row[counter] for row in rows])
        curve = figure.signal(xs, [y / unit for y in ys], marker="braille")
        curve.lines()
        figure.draw(curve)
    ticks = [places[0] + (places[-1] - places[0]) * part / 5 for part in range(6)]
    digits = 0 if ticks[-1] - ticks[0] >= TICKS_IN_WHOLES else 2
    figure.ruler("x").ticks(ticks, [f"{tick:,.{digits}f}" for tick in ticks])
    sys.stdout.write(finished(figure, colour=colour) + "\n")


def thinned(places: Sequence[float], values: list[int]) -> tuple[list[float], list[int]]:
    """At most PLOT_POINTS points as steps; of a stretch that one point stands for, the first and the largest."""
    size = -(-len(values) // (PLOT_POINTS // 4))
    xs: list[float] = []
    ys: list[int] = []
    for start in range(0, len(values), size):
        piece = values[start : start + size]
        for value in (piece[0], max(piece)):
            xs += [places[start]] * (2 if ys else 1)
            ys += [ys[-1], value] if ys else [value]
    return [*xs, places[-1]], [*ys, values[-1]]


def _share(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else f"{fraction * 100:.1f} %"


def _times(count: int | None, never: str) -> str:
    return UNKNOWN if count is None else never if count == 0 else str(count)
