"""The columns of the process table: what each shows, how wide it is, and in which colours."""

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter

from rich.style import Style
from textual.strip import Strip

from vramtui.app.state.view import ProcessRow, SortColumn
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Column, cell, delta_colour, filled, under_cursor
from vramtui.app.ui.lines import Piece, fit, strip
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_duration, format_gib, format_percent

FULL = 84
EXACT = "="  # before a peak that was told, not sampled
_WIDE: tuple[Column[SortColumn], ...] = (
    Column("pid", "PID", 8, numeric=True),
    Column("gpu", "GPU", 5, numeric=True),
    Column("user", "USER", 10),
    Column("now", "NOW GiB", 9, numeric=True),
    Column("peak", "PEAK", 8, numeric=True),
    Column("predicted", "PREDICTED", 10, numeric=True),
    Column("delta", "Δ", 10, numeric=True),
    Column("command", "COMMAND", 0),
)
_NARROW: tuple[Column[SortColumn], ...] = (
    Column("pid", "PID", 7, numeric=True),
    Column("gpu", "GPU", 5, numeric=True),
    Column("user", "USER", 7),
    Column("now", "NOW GiB", 8, numeric=True),
    Column("peak", "PEAK", 7, numeric=True),
    Column("predicted", "PREDICT", 8, numeric=True),
    Column("delta", "Δ", 9, numeric=True),
    Column("command", "COMMAND", 0),
)


@lru_cache(maxsize=16)
def columns_for(breadth: int, width: int) -> tuple[Column[SortColumn], ...]:
    """The columns of a table `breadth` columns wide, of which a scroll bar leaves `width`."""
    return filled(_WIDE if breadth >= FULL else _NARROW, width)


def row_strip(
    columns: tuple[Column[SortColumn], ...], row: ProcessRow, palette: Palette, width: int, cursor: str | None
) -> Strip:
    """One row; `cursor` is the colour under it when it is the chosen one."""
    on = cursor or "background"
    faded = row.kind != "process" or row.age is not None or (row.process is not None and row.process.state == "exited")
    base = palette.ink("muted" if faded else "foreground", on)
    pieces: list[Piece] = []
    spilt = 0
    for column in columns:
        text, style = _CELLS[column.name](row, palette, on)
        if column.name == "peak" and row.process is None:
            # A remainder has neither peak nor prediction: its words begin where theirs would stand.
            text, style = _command(row, palette, on)
            taken = sum(before.width for before in columns[: columns.index(column)])
            pieces.append(("  " + fit(text, width - taken - 2), style or base))
            break
        made = cell(text, column)[spilt:]
        spilt = 0
        if column.name == "pid" and len(text) >= column.width:
            # Seven digits and the cursor's mark: one column of the next cell, whose text stands at its right.
            made, spilt = f" {text}", len(text) + 1 - column.width
        pieces.append((made, style or base))
    return strip(under_cursor(pieces, cursor), width, base)


_of_row: Callable[[ProcessRow], tuple[object, ...]] = attrgetter(
    *(name for name in ProcessRow.__struct_fields__ if name != "gpu"), "gpu.index", "gpu.mig_profile"
)


def look_alike(one: ProcessRow, other: ProcessRow) -> bool:
    """Whether two rows are drawn the same; of a row's GPU the table shows no more than its number and profile."""
    return one is other or _of_row(one) == _of_row(other)


_Made = tuple[str, Style | None]


def _pid(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    return (str(row.process.pid) if row.process is not None else UNKNOWN, None)


def _gpu(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    size = f"/{printable(row.gpu.mig_profile).partition('.')[0]}" if row.gpu.mig_profile else ""
    return (f"{row.gpu.index}{size}", None)


def _user(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    return (printable(row.process.user or UNKNOWN) if row.process is not None else UNKNOWN, None)


def _now(row: ProcessRow, palette: Palette, on: str) -> _Made:
    if row.kind == "process" and row.now is None:
        return ("N/A", palette.ink("warning", on))
    return (
        format_gib(row.now),
        palette.ink("foreground", on, bold=True) if row.kind == "process" and row.age is None else None,
    )


def _peak(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    exact = row.learnt is not None and row.learnt.how != "sampled"
    return ((EXACT if exact else "") + format_gib(row.peak), None)


def _predicted(row: ProcessRow, palette: Palette, on: str) -> _Made:
    return (format_gib(row.predicted), palette.ink("prediction", on) if row.predicted is not None else None)


def _delta(row: ProcessRow, palette: Palette, on: str) -> _Made:
    if row.fraction is None:
        return ("" if row.preset is None else UNKNOWN, None)
    return (format_percent(row.fraction), palette.ink(delta_colour(row.fraction), on))


def _command(row: ProcessRow, palette: Palette, on: str) -> _Made:
    process = row.process
    if process is None:
        text = printable(row.note) if row.kind == "note" else _remainder(row)
        return (_aged(row) + text, palette.ink("warning", on) if row.kind == "note" else None)
    state = "(exited) " if row.kind == "exited" else _STATES.get(process.state, "")
    return (_aged(row) + state + printable(process.command or process.name or ""), None)


def _remainder(row: ProcessRow) -> str:
    if row.kind == "unattributed" and row.note:
        return f"unattributed: {row.note}"
    return _REMAINDERS[row.kind] + row.note


def _aged(row: ProcessRow) -> str:
    """How old the row is, where its GPU does not answer."""
    return "" if row.age is None else f"({format_duration(row.age)} ago) "


_REMAINDERS = {
    "instances": "held by its MIG instances, listed separately",
    "unattributed": "unattributed: driver, exited pids, managed memory",
    "reserved": "driver and firmware",
}
_STATES = {
    "exited": "(exited, memory still held) ",
    "zombie": "(zombie) ",
    "unseen": "(outside this container) ",
}
_CELLS: dict[SortColumn, Callable[[ProcessRow, Palette, str], _Made]] = {
    "pid": _pid,
    "gpu": _gpu,
    "user": _user,
    "now": _now,
    "peak": _peak,
    "predicted": _predicted,
    "delta": _delta,
    "command": _command,
}
