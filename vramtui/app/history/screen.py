"""The History screen: past runs, and the errors of their predictions."""

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Container

from vramtui.app.context import AppContext
from vramtui.app.history.panels import HistoryView, RunErrors, RunTable
from vramtui.app.history.run_window import RunPreview, RunWindow
from vramtui.app.keys import FIRST, HISTORY_BINDINGS
from vramtui.app.state.view import View
from vramtui.app.ui.dialog import Confirm
from vramtui.app.ui.filter_bar import FilterBar
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.lists import RowChosen, SortChosen
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.core.base.text import printable
from vramtui.core.runs.run import StoredRun
from vramtui.core.runs.run_list import RunColumn, why_not_deleted

if TYPE_CHECKING:
    from vramtui.app.history.controller import HistoryController

WIDE, VERY_WIDE, TALL = 112, 170, 46
FILTER = "filter: words in host, GPU, preset, method, command, pid or how it ended"
NOTHING = "No run is selected: the list is empty."


class HistoryScreen(ViewScreen):
    """Past runs, and the errors of their predictions: next to the list, or below it in a narrow terminal."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (VERY_WIDE, "-very-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (TALL, "-tall")]
    CSS_PATH = "history.tcss"
    BINDINGS = HISTORY_BINDINGS
    PLACE = "history"
    FIRST_FOCUS = "RunRows"

    def __init__(self, shared: AppContext, history: "HistoryController") -> None:
        super().__init__()
        self._shared, self._history, self._model = shared, history, history.model
        self.shown = HistoryView()

    def compose(self) -> ComposeResult:
        yield Header("History")
        with Container(id="body"):
            yield RunTable()
            with Container(id="side"):
                yield RunPreview()
                yield RunErrors()
        yield KeyBar()

    def panels_view(self, view: View) -> HistoryView:
        del view
        self.shown = self._history.view()
        self.set_class(self.shown.chosen is not None, "-selected")
        return self.shown

    def on_row_chosen(self, message: RowChosen[int]) -> None:
        self._model.choose(message.row)
        self._shared.redraw.now()

    def on_sort_chosen(self, message: SortChosen[RunColumn]) -> None:
        self._model.sort_by(message.column)
        self._shared.redraw.now()

    def action_sort_runs(self, direction: int) -> None:
        self._model.sort_next(direction)
        self._shared.redraw.now()

    def action_reverse_runs(self) -> None:
        self._model.sort_by(self._model.sort)
        self._shared.redraw.now()

    def action_filter_runs(self) -> None:
        """Ask for the words that runs must contain."""
        if not self.query(FilterBar):
            bar = FilterBar(self._model.filter, placeholder=FILTER, rows="#runs", typed=self._set_filter)
            self.mount(bar, before="KeyBar")

    def _set_filter(self, text: str) -> None:
        self._model.set_filter(text)
        self._shared.redraw.now()

    def action_leave_history(self) -> None:
        """Clear the filter, else leave the screen."""
        if self._model.filter:
            self._set_filter("")
        else:
            self._shared.screens.show(FIRST)

    def action_open_run(self) -> None:
        run = self._chosen_run()
        if run is not None and self.palette is not None:
            window = RunWindow(run, self.palette, self._shared.clock(), self.action_report_run, self.action_forget_run)
            self.app.push_screen(window)

    def action_report_run(self) -> None:
        run = self._chosen_run()
        if run is not None:
            self._history.report(run)

    def action_forget_run(self) -> None:
        """Delete the selected run, after a question."""
        stored = self._chosen_run()
        if stored is None or self._history.store is None:
            return
        refused = why_not_deleted(stored, self._shared.clock())
        if refused:
            self.notify(f"Not deleted: {refused}.", severity="warning", markup=False)
            return

        run = stored.run
        what = f"run {stored.id}, {printable(run.preset or run.command or 'without a preset')} on {printable(run.host)}"
        question = f"Remove {what}, from the history? This cannot be undone."

        def on_answer(yes: bool | None) -> None:
            if yes:
                self._history.forget(stored)

        self.app.push_screen(Confirm("Delete this run?", question, "y delete · n or Esc cancel"), on_answer)

    def _chosen_run(self) -> StoredRun | None:
        run = self._model.selected
        if run is None:
            self.notify(NOTHING, markup=False)
        return run
