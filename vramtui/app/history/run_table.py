"""The list of past runs: what each column shows, how wide it is, and in which colours."""

import time
from collections.abc import Callable, Sequence
from functools import lru_cache

from rich.style import Style
from textual.strip import Strip

from vramtui.app.history.model import HistoryView
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Column, Columns, cell, delta_colour, filled, narrowed, short_name, under_cursor
from vramtui.app.ui.cursor_list import CursorRows, moving_keys
from vramtui.app.ui.lines import Piece, strip, wrap
from vramtui.app.ui.list_frame import ListFrame, SortHeading
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_gib, format_percent
from vramtui.core.runs.run import Run, StoredRun
from vramtui.core.runs.run_list import FAILED, RunColumn, ending_words, lasted_words

FULL, ROOMY = 100, 125
LEAST_PRESET = 18

_WIDE: Columns[RunColumn] = (
    Column("when", "WHEN", 18),
    Column("host", "HOST", 12),
    Column("gpu", "GPU", 15),
    Column("preset", "PRESET", 0),
    Column("predicted", "PREDICTED", 10, numeric=True),
    Column("observed", "OBSERVED", 9, numeric=True),
    Column("error", "Δ", 10, numeric=True),
    Column("lasted", "LASTED", 11, numeric=True),
    Column("ended", "ENDED", 20),
)
_FULL = tuple(column for column in _WIDE if column.name != "lasted")
_NARROW = narrowed(
    _WIDE,
    {"when": 13, "host": 8, "gpu": 7, "preset": 0, "predicted": 8, "observed": 7, "error": 9, "ended": 15},
    {"predicted": "PREDICT", "observed": "SEEN"},
)
EMPTY = (
    "No runs recorded yet.",
    "The dashboard records every job that is matched to a preset.",
    "A preset's [match] matches its jobs; on the Watch screen m assigns a preset to the selected process.",
    "vramtui run --preset NAME -- COMMAND records a job with PyTorch's own figures beside the driver's.",
)


@lru_cache(maxsize=16)
def columns_for(breadth: int) -> Columns[RunColumn]:
    """The columns of a list `breadth` columns wide, the last of which is left to a scroll bar; the preset's has what is
    left, and the host gives way to it.
    """
    columns = _NARROW if breadth < FULL else _WIDE if breadth >= ROOMY else _FULL
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
    "lasted": lasted_words,
}


def _style(run: Run, column: RunColumn, palette: Palette, on: str) -> Style:
    colour = "foreground"
    if column == "predicted" and run.predicted.process:
        colour = "prediction"
    elif column == "error":
        colour = delta_colour(run.error) if run.error is not None and run.finished else "muted"
    elif column == "ended":
        colour = "error" if run.ending in FAILED else "success" if run.ending == "running" else "muted"
    elif column == "lasted" or (column == "preset" and not run.preset):
        colour = "muted"
    return palette.ink(colour, on)


class RunRows(CursorRows[HistoryView, StoredRun]):
    """The rows; the cursor is the chosen run."""

    BINDINGS = moving_keys("runs")
    OPENS = "screen.open_run"

    def rows_of(self, view: HistoryView) -> Sequence[StoredRun]:
        return view.runs

    def cursor_of(self, view: HistoryView) -> int:
        return next((at for at, stored in enumerate(view.runs) if stored is view.chosen), 0)

    def line_of(self, row: StoredRun, palette: Palette, width: int, cursor: str | None) -> Strip:
        now = self.view.now if self.view is not None else 0.0
        return run_strip(row.run, now, palette, self.breadth, cursor).crop(0, width)

    def sentences(self, view: HistoryView, width: int) -> Sequence[str]:
        return _sentences(view, width)


class RunTable(ListFrame[HistoryView, RunColumn, StoredRun]):
    """Heading and rows in a frame."""

    def __init__(self) -> None:
        heading = SortHeading[HistoryView, RunColumn](
            lambda _, width: columns_for(width), lambda view: (view.sort, view.falls)
        )
        super().__init__(heading, RunRows(id="runs"))

    def titles(self, view: HistoryView) -> tuple[str, str]:
        """How many runs; what the filter is."""
        count = f"{len(view.runs)} of {view.total}" if view.filter else str(view.total)
        unit = "memory in GiB" if view.runs else ""
        below = f"filter: {printable(view.filter)}, Esc shows all" if view.filter else unit
        return f"Runs · {count}{f' · {view.note}' if view.note else ''}", below


def _sentences(past: HistoryView, width: int) -> list[str]:
    """What stands there instead of runs."""
    if past.problem:
        return wrap(printable(past.problem), width)
    if not past.is_read:
        return ["Loading the history …"]
    if past.filter:
        return wrap(f"No run matches “{printable(past.filter)}”. Esc clears the filter.", width)
    return [line for sentence in EMPTY for line in [*wrap(sentence, width), ""]]
