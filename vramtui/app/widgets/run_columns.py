"""The columns of the list of past runs: what each shows, how wide it is, and in which colours."""

import time
from collections.abc import Callable

import msgspec
from rich.style import Style
from textual.strip import Strip

from vramtui.app.past import PastView
from vramtui.app.themes import Palette
from vramtui.app.widgets.columns import delta_colour
from vramtui.app.widgets.lines import Piece, fit, right, strip
from vramtui.core.run_list import FAILED, RunColumn, ending_words
from vramtui.core.runs import Run
from vramtui.core.text import printable
from vramtui.core.units import format_gib, format_percent

FULL = 100
LEAST_PRESET = 18


class Column(msgspec.Struct, frozen=True):
    """One column; `width` 0 takes what is left."""

    name: RunColumn
    title: str
    width: int
    numeric: bool = False


_WIDE = (
    Column("when", "WHEN", 18),
    Column("host", "HOST", 12),
    Column("gpu", "GPU", 15),
    Column("preset", "PRESET", 0),
    Column("predicted", "PREDICTED", 10, numeric=True),
    Column("observed", "OBSERVED", 9, numeric=True),
    Column("error", "Δ", 10, numeric=True),
    Column("ended", "ENDED", 20),
)
_NARROW = (
    Column("when", "WHEN", 13),
    Column("host", "HOST", 8),
    Column("gpu", "GPU", 7),
    Column("preset", "PRESET", 0),
    Column("predicted", "PREDICT", 8, numeric=True),
    Column("observed", "SEEN", 7, numeric=True),
    Column("error", "Δ", 9, numeric=True),
    Column("ended", "ENDED", 15),
)


def columns_for(width: int) -> tuple[Column, ...]:
    """The columns of a list `width` columns wide; the preset's has what is left, and the host gives way to it."""
    columns: tuple[Column, ...] = _WIDE if width >= FULL else _NARROW
    rest = width - sum(column.width for column in columns) - 1
    if rest < LEAST_PRESET:
        host = next(column for column in columns if column.name == "host")
        columns = tuple(column for column in columns if column is not host)
        rest += host.width
    return tuple(column if column.width else msgspec.structs.replace(column, width=max(6, rest)) for column in columns)


def heading(past: PastView, palette: Palette, width: int) -> Strip:
    """The names of the columns, the one that sorts marked."""
    pieces: list[Piece] = []
    for column in columns_for(width):
        sorts = column.name == past.sort
        falls = column.name in {"when", "predicted", "observed", "error"}
        title = column.title + ("▾" if falls != past.reverse else "▴") if sorts else column.title
        pieces.append((_cell(title, column), palette.ink("primary" if sorts else "muted", bold=True)))
    return strip(pieces, width, palette.text)


def column_at(width: int, x: int) -> RunColumn | None:
    """The column at position `x` of a line."""
    start = 0
    for column in columns_for(width):
        start += column.width
        if x < start:
            return column.name
    return None


def run_strip(run: Run, now: float, palette: Palette, width: int, cursor: str | None) -> Strip:
    """One row; `cursor` is the colour under it when it is the chosen one. `now` in seconds since the epoch."""
    on = cursor or "background"
    pieces: list[Piece] = []
    for column in columns_for(width):
        if column.name == "when":
            text = when(run.started_at, now, short=width < FULL)
        elif column.name == "ended":
            # Where there is little room an exit code is left for the run's own window.
            text = ending_words(run, now).partition(" (" if width < FULL else "\n")[0]
        else:
            text = _TEXTS[column.name](run)
        pieces.append((_cell(text, column), _style(run, column.name, palette, on)))
    if cursor is not None:
        first, style = pieces[0]
        pieces[0] = ("▸" + first[1:], style)
    return strip(pieces, width, palette.ink("foreground", on))


def when(at: float, now: float, *, short: bool) -> str:
    """A moment in local time; `short` leaves out this year's year."""
    local, this = time.localtime(at), time.localtime(now)
    if not short:
        return time.strftime("%Y-%m-%d %H:%M", local)
    return time.strftime("%d %b %H:%M" if local.tm_year == this.tm_year else "%Y-%m-%d", local)


def card_name(name: str) -> str:
    """A card as people call it."""
    return printable(name).removeprefix("NVIDIA ").removeprefix("GeForce ")


def _cell(text: str, column: Column) -> str:
    return right(text, column.width) if column.numeric else " " + fit(text, column.width - 1)


_TEXTS: dict[RunColumn, Callable[[Run], str]] = {
    "host": lambda run: printable(run.host),
    "gpu": lambda run: card_name(run.gpu_name),
    "preset": lambda run: printable(run.preset or run.command),
    "predicted": lambda run: format_gib(run.predicted.process),
    "observed": lambda run: format_gib(run.observed.process),
    "error": lambda run: format_percent(run.error),
}


def _style(run: Run, column: RunColumn, palette: Palette, on: str) -> Style:
    colour = "foreground"
    if column == "predicted" and run.predicted.process:
        colour = "prediction"
    elif column == "error":
        colour = delta_colour(run.error) if run.error is not None and run.finished else "muted"
    elif column == "ended":
        colour = "error" if run.ending in FAILED else "success" if run.ending == "running" else "muted"
    elif column == "preset" and not run.preset:
        colour = "muted"
    return palette.ink(colour, on)
