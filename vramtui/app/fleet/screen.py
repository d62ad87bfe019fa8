"""The Fleet screen."""

from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult

from vramtui.app.context import AppContext
from vramtui.app.fleet.model import FleetModel, FleetView, JobModel
from vramtui.app.fleet.tables import FleetRows, FleetTable, JobRows, JobTable
from vramtui.app.keys import FIRST, FLEET, FLEET_BINDINGS
from vramtui.app.state.view import View
from vramtui.app.ui.filter_bar import FilterBar
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.lists import ColumnSort, RowChosen, SortChosen
from vramtui.app.ui.view_screen import ViewScreen

if TYPE_CHECKING:
    from vramtui.app.fleet.controller import FleetController

FILTER = "filter: words, or host:gpu01 user:anna gpu:0 state:down"


class FleetScreen(ViewScreen):
    """A line for each GPU of each host."""

    CSS_PATH = "fleet.tcss"
    BINDINGS = FLEET_BINDINGS
    PLACE = FLEET.name
    FIRST_FOCUS = "FleetRows"

    def __init__(self, shared: AppContext, fleet: "FleetController") -> None:
        super().__init__()
        self._shared, self._fleet, self._model = shared, fleet, fleet.model

    def compose(self) -> ComposeResult:
        yield Header(FLEET.title)
        yield FleetTable()
        yield JobTable()
        yield KeyBar()

    def panels_view(self, view: View) -> FleetView:
        del view
        return self._fleet.view()

    @property
    def _current_model(self) -> FleetModel | JobModel:
        """The model of the list that is shown: GPUs or jobs."""
        return self._model.jobs if self._model.by_job else self._model

    def on_row_chosen(self, message: RowChosen[tuple[str, str]]) -> None:
        self._current_model.choose(message.row)
        self._shared.redraw.now()

    def on_sort_chosen(self, message: SortChosen[Any]) -> None:
        self._current_model.sort_by(message.column)
        self._shared.redraw.now()

    def action_fleet_jobs(self) -> None:
        """Show jobs instead of GPUs, or GPUs again."""
        self._model.by_job = not self._model.by_job
        self.set_class(self._model.by_job, "-jobs")
        self.query_one(JobRows if self._model.by_job else FleetRows).focus()
        self._shared.redraw.now()

    def action_sort_fleet(self, direction: int) -> None:
        self._current_model.sort_next(direction)
        self._shared.redraw.now()

    def action_reverse_fleet(self) -> None:
        listed: ColumnSort[Any] = self._current_model
        listed.sort_by(listed.sort)
        self._shared.redraw.now()

    def action_filter_fleet(self) -> None:
        """Ask for the words that rows must contain."""
        if not self.query(FilterBar):
            bar = FilterBar(
                self._model.filter,
                placeholder=FILTER,
                rows="#jobs" if self._model.by_job else "#fleet",
                typed=self._set_filter,
            )
            self.mount(bar, before="KeyBar")

    def _set_filter(self, text: str) -> None:
        self._model.filter = text
        self._shared.redraw.now()

    def action_watch_host(self) -> None:
        self._fleet.watch_chosen()

    def action_leave_fleet(self) -> None:
        """Clear the filter, else leave the jobs, else the screen."""
        if self._model.filter:
            self._set_filter("")
        elif self._model.by_job:
            self.action_fleet_jobs()
        else:
            self._shared.screens.show(FIRST)
