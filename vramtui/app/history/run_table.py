"""The list of past runs."""

from collections.abc import Sequence

from textual.message import Message
from textual.strip import Strip

from vramtui.app.history.model import HistoryView
from vramtui.app.history.run_columns import columns_for, run_strip
from vramtui.app.messages import RunChosen, RunSortChosen
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Column
from vramtui.app.ui.cursor_list import CursorRows, moving_keys
from vramtui.app.ui.lines import wrap
from vramtui.app.ui.list_frame import ListFrame, SortHeading
from vramtui.core.base.text import printable
from vramtui.core.runs.run import StoredRun
from vramtui.core.runs.run_list import FROM_THE_LARGEST, RunColumn

EMPTY = (
    "No runs recorded yet.",
    "The dashboard records every job that is matched to a preset.",
    "A preset's [match] matches its jobs; on the Watch screen m assigns a preset to the selected process.",
    "vramtui run --preset NAME -- COMMAND records a job with PyTorch's own figures beside the driver's.",
)


class RunHeading(SortHeading[HistoryView, RunColumn]):
    """The columns of the list of runs."""

    def columns(self, width: int) -> tuple[Column[RunColumn], ...]:
        """Those of the rows below."""
        return columns_for(width)

    def sorting(self, view: HistoryView) -> tuple[RunColumn, bool]:
        """Moments begin with the latest and figures with the largest."""
        return view.sort, (view.sort in FROM_THE_LARGEST) != view.reverse

    def choice(self, column: RunColumn) -> Message:
        """Sort by it."""
        return RunSortChosen(column)


class RunRows(CursorRows[HistoryView, StoredRun]):
    """The rows; the cursor is the chosen run."""

    BINDINGS = moving_keys("runs")
    OPENS = "screen.open_run"

    def rows_of(self, view: HistoryView) -> Sequence[StoredRun]:
        """Filtered and in order."""
        return view.runs

    def cursor_of(self, view: HistoryView) -> int:
        """Where the chosen one stands."""
        return next((at for at, kept in enumerate(view.runs) if kept is view.chosen), 0)

    def line_of(self, row: StoredRun, palette: Palette, width: int, cursor: str | None) -> Strip:
        """One run, as of now."""
        now = self.view.now if self.view is not None else 0.0
        return run_strip(row.run, now, palette, self.breadth, cursor).crop(0, width)

    def sentences(self, view: HistoryView, width: int) -> Sequence[str]:
        """Why there are no runs."""
        return _sentences(view, width)

    def choice(self, row: StoredRun) -> Message:
        """Look at this one."""
        return RunChosen(row.id)


class RunTable(ListFrame[HistoryView, RunColumn, StoredRun]):
    """Heading and rows in a frame."""

    def __init__(self) -> None:
        super().__init__(RunHeading(), RunRows(id="runs"))

    def titles(self, view: HistoryView) -> tuple[str, str]:
        """How many runs; what the filter is."""
        count = f"{len(view.runs)} of {view.total}" if view.filter else str(view.total)
        unit = "peaks in GiB" if view.runs else ""
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
