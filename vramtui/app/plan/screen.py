"""The Plan screen: a map of what fits a card, the parts of one cell, and the planner's advice."""

from typing import TYPE_CHECKING

import msgspec
from textual.app import ComposeResult
from textual.containers import Container

from vramtui.app.context import AppContext
from vramtui.app.keys import FIRST, PLAN_BINDINGS
from vramtui.app.messages import CellChosen, CellMoved
from vramtui.app.plan.heatmap import Heatmap
from vramtui.app.plan.model import PlanView
from vramtui.app.plan.panels import PlanBar, PlanParts, PlanWords
from vramtui.app.state.view import View
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.view_screen import ViewScreen

if TYPE_CHECKING:
    from vramtui.app.plan.controller import PlanController
    from vramtui.app.plan.dialogs import PlanDialogs

WIDE, WIDEST = 112, 170


class PlanScreen(ViewScreen):
    """A map of what fits. Two maps are next to each other if there is room; else `v` turns pages."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (WIDEST, "-widest")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (42, "-tall")]
    CSS_PATH = "plan.tcss"
    BINDINGS = PLAN_BINDINGS
    PLACE = "plan"
    PAGES = ("map", "parts", "second")
    FIRST_FOCUS = "#map"

    def __init__(self, shared: AppContext, plan: "PlanController") -> None:
        super().__init__()
        self._shared, self._plan, self._model = shared, plan, plan.model
        self.shown = PlanView()

    def compose(self) -> ComposeResult:
        yield Header("Plan")
        yield PlanBar()
        with Container(id="maps"):
            yield Heatmap(0, id="map")
            yield Heatmap(1, id="second")
        with Container(id="lower"):
            yield PlanParts(id="parts")
            yield PlanWords(id="words")
        yield KeyBar()

    def panels_view(self, view: View) -> PlanView:
        """The maps as they are now; a second map gets its room."""
        self.shown = self._plan.view()
        if view.view_only:
            self.shown = msgspec.structs.replace(self.shown, view_only=True)
        has_second = len(self.shown.maps) > 1
        if has_second != self.has_class("-beside"):
            self.set_class(has_second, "-beside")
            if not has_second and self.has_class("page-second"):
                self._turn_to("map")
            self.call_after_refresh(self.watch_view, view)
        return self.shown

    def put_away(self) -> None:
        self._plan.put_away()

    @property
    def pages(self) -> tuple[str, ...]:
        if self.has_class("-widest"):
            return ("map",)
        parts = ("parts",) if self.has_class("-narrow") else ()
        second = ("second",) if self.has_class("-beside") else ()
        return ("map", *parts, *second)

    def action_page(self) -> None:
        at = next((at for at, page in enumerate(self.pages) if self.has_class(f"page-{page}")), 0)
        self._turn_to(self.pages[(at + 1) % len(self.pages)])
        self.call_after_refresh(self.watch_view, self.view)

    def action_changes(self) -> None:
        """Focus the changes that free memory, or the map."""
        words = self.query_one(PlanWords)
        if words.has_focus:
            self.query_one("#second" if self.has_class("page-second") else "#map").focus()
            return
        if not words.display:
            self._turn_to("map")
            self.call_after_refresh(self.watch_view, self.view)
        words.focus()

    def _turn_to(self, page: str) -> None:
        self.remove_class(*(f"page-{name}" for name in self.PAGES))
        self.add_class(f"page-{page}")
        self.query_one("#second" if page == "second" else "#map").focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the page key only if there are several pages."""
        del parameters
        if action == "changes":
            return bool(self.shown.maps)
        return action != "page" or len(self.pages) > 1

    def on_cell_moved(self, message: CellMoved) -> None:
        x, y = self._model.cursor
        self._model.go(x + message.across, y + message.down)
        self._shared.redraw.for_key()

    def on_cell_chosen(self, message: CellChosen) -> None:
        self._model.go(message.x, message.y)
        self._shared.redraw.for_key()

    def action_plan_home(self) -> None:
        self._model.go_home()
        self._shared.redraw.now()

    def action_plan_edge(self) -> None:
        if not self._model.go_to_edge():
            self.notify("Nothing in this row fits.", timeout=2, markup=False)
        self._shared.redraw.now()

    def action_move_change(self, down: int) -> None:
        self.action_choose_change(self._model.change + down)

    def action_choose_change(self, at: int) -> None:
        self._model.choose_change(at)
        self._shared.redraw.for_key()

    def action_leave_plan(self) -> None:
        self._shared.screens.show(FIRST)

    def action_swap_axes(self) -> None:
        if self._model.axes:
            self._model.swap()
            self._shared.redraw.now()

    @property
    def _dialogs(self) -> "PlanDialogs":
        from vramtui.app.plan.dialogs import PlanDialogs  # loads Textual's lists and inputs

        return PlanDialogs(self._shared, self._model)

    def action_choose_axis(self, across: bool) -> None:
        self._dialogs.choose_axis(across)

    def action_choose_card(self) -> None:
        self._dialogs.choose_card()

    def action_choose_beside(self) -> None:
        self._dialogs.choose_second()

    def action_take_variant(self) -> None:
        self._dialogs.take_variant()

    def action_take_change(self) -> None:
        self._dialogs.take_change()

    def action_save_variant(self) -> None:
        self._dialogs.save_variant()

    def action_run_on_cards(self) -> None:
        from vramtui.app.plan.each_card import ask_cards

        ask_cards(self._shared, self._plan.runner)
