"""The columns of the list of past runs: what each shows, how wide it is, and in which colours."""

import time
from collections.abc import Callable
from functools import lru_cache

from rich.style import Style
from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Column, cell, delta_colour, filled, short_name, under_cursor
from vramtui.app.ui.lines import Piece, strip
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_gib, format_percent
from vramtui.core.runs.run import Run
from vramtui.core.runs.run_list import FAILED, RunColumn, ending_words

FULL = 100
LEAST_PRESET = 18

_WIDE: tuple[Column[RunColumn], ...] = (
    Column("when", "WHEN", 18),
    Column("host", "HOST", 12),
    Column("gpu", "GPU", 15),
    Column("preset", "PRESET", 0),
    Column("predicted", "PREDICTED", 10, numeric=True),
    Column("observed", "OBSERVED", 9, numeric=True),
    Column("error", "Δ", 10, numeric=True),
    Column("ended", "ENDED", 20),
)
_NARROW: tuple[Column[RunColumn], ...] = (
    Column("when", "WHEN", 13),
    Column("host", "HOST", 8),
    Column("gpu", "GPU", 7),
    Column("preset", "PRESET", 0),
    Column("predicted", "PREDICT", 8, numeric=True),
    Column("observed", "SEEN", 7, numeric=True),
    Column("error", "Δ", 9, numeric=True),
    Column("ended", "ENDED", 15),
)


@lru_cache(maxsize=16)
def columns_for(breadth: int) -> tuple[Column[RunColumn], ...]:
    """The columns of a list `breadth` columns wide, the last of which is left to a scroll bar; the preset's has what is
    left, and the host gives way to it.
    """
    columns = _WIDE if breadth >= FULL else _NARROW
    if breadth - 1 - sum(column.width for column in columns) < LEAST_PRESET:
        columns = tuple(column for column in columns if column.name != "host")
    return filled(columns, breadth - 1, least=6)


def run_strip(run: Run, now: float, palette: Palette, breadth: int, cursor: str | None) -> Strip:
    """One row; `cursor` is the colour under it when it is the chosen one. `now` in seconds since the epoch."""
    on = cursor or "background"
    short = breadth < FULL
    pieces: list[Piece] = []
    for column in columns_for(breadth):
        if column.name == "when":
            text = when(run.started_at, now, short=short)
        elif column.name == "ended":
            # Where there is little room an exit code is left for the run's own window.
            text = ending_words(run, now).partition(" (" if short else "\n")[0]
        else:
            text = _TEXTS[column.name](run)
        pieces.append((cell(text, column), _style(run, column.name, palette, on)))
    return strip(under_cursor(pieces, cursor), breadth, palette.ink("foreground", on))


def when(at: float, now: float, *, short: bool) -> str:
    """A moment in local time; `short` leaves out this year's year."""
    local, this = time.localtime(at), time.localtime(now)
    if not short:
        return time.strftime("%Y-%m-%d %H:%M", local)
    return time.strftime("%d %b %H:%M" if local.tm_year == this.tm_year else "%Y-%m-%d", local)


_TEXTS: dict[RunColumn, Callable[[Run], str]] = {
    "host": lambda run: printable(run.host),
    "gpu": lambda run: short_name(printable(run.gpu_name)),
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
