"""The Plan screen: a map of what fits a card, the parts of one cell of it, and the planner's words."""

from typing import TYPE_CHECKING, Protocol

import msgspec
from textual.app import ComposeResult
from textual.containers import Container

from vramtui.app.context import AppContext
from vramtui.app.keys import FIRST, PLAN_BINDINGS
from vramtui.app.messages import CellChosen, CellMoved
from vramtui.app.plan.model import PlanModel
from vramtui.app.plan.view import PlanView
from vramtui.app.plan.widgets.advice import PlanWords
from vramtui.app.plan.widgets.bar import PlanBar
from vramtui.app.plan.widgets.heatmap import Heatmap
from vramtui.app.plan.widgets.parts import PlanParts
from vramtui.app.state.view import View
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.view_screen import ViewScreen

WIDE, WIDEST = 112, 170

if TYPE_CHECKING:
    from vramtui.app.plan.choices import PlanChoices
    from vramtui.app.plan.variants import PlanVariants


class PlanOwner(Protocol):
    """What the screen asks of the part of the dashboard that owns it."""

    @property
    def model(self) -> PlanModel:
        """What is varied, and the maps."""
        ...

    def view(self) -> PlanView:
        """What the screen shows; what is not known of it yet is worked at."""
        ...

    def ask_cards(self) -> None:
        """Ask which script is to run on which cards."""
        ...

    def put_away(self) -> None:
        """Leave the maps as they are, for a while."""
        ...


class PlanScreen(ViewScreen):
    """What fits where, before it runs. Two maps stand side by side where there is room; else `v` turns pages."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (WIDEST, "-widest")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (42, "-tall")]
    DEFAULT_CSS = """
    PlanScreen {
        layout: vertical; background: $background;
        Header, KeyBar, PlanBar { height: 1; }
        KeyBar { dock: bottom; }
        #maps { height: 1fr; layout: horizontal; }
        #map, #second { width: 1fr; height: 100%; }
        #lower { height: 14; layout: horizontal; }
        #parts, #words { width: 1fr; height: 100%; }
        &.-low #lower { height: 13; }
        &.-tall #lower { height: 18; }
        &.-narrow #lower { height: 9; }
        &.-narrow.page-map #parts, &.-narrow.page-second #parts { display: none; }
        &.-narrow.page-parts #words { display: none; }
        &.-widest #parts { width: 2fr; }
        &.-widest #words { width: 3fr; }
        #second { display: none; }
        &.-beside.-widest #second { display: block; }
        &.-beside.page-second #second { display: block; }
        &.-beside.page-second #map { display: none; }
        &.-beside.-widest #map { display: block; }
    }
    """
    BINDINGS = PLAN_BINDINGS
    PLACE = "plan"
    PAGES = ("map", "parts", "second")
    FIRST_FOCUS = "#map"

    def __init__(self, shared: AppContext, plan: PlanOwner) -> None:
        super().__init__()
        self._shared = shared
        self._plan = plan
        self._model = plan.model
        self.shown = PlanView()

    @property
    def _choices(self) -> "PlanChoices":
        from vramtui.app.plan.choices import PlanChoices  # its windows load Textual's lists and inputs

        return PlanChoices(self._shared, self._model)

    @property
    def _variants(self) -> "PlanVariants":
        from vramtui.app.plan.variants import PlanVariants  # where a variant is saved

        return PlanVariants(self._shared, self._model)

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
        """The maps as they are now; there is made room for a second one where there is one."""
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
        """Nobody looks at the maps: they stay as they are for a while."""
        self._plan.put_away()

    # --- pages ---------------------------------------------------------------------------------------------------

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
        """Offer the keys for pages only where not everything fits."""
        del parameters
        if action == "changes":
            return bool(self.shown.maps)
        return action != "page" or len(self.pages) > 1

    # --- the cursor ----------------------------------------------------------------------------------------------

    def on_cell_moved(self, message: CellMoved) -> None:
        self._model.move(message.across, message.down)
        self._shared.redraw.for_key()

    def on_cell_chosen(self, message: CellChosen) -> None:
        self._model.go(message.x, message.y)
        self._shared.redraw.for_key()

    def action_plan_home(self) -> None:
        self._model.go_home()
        self._shared.redraw.now()

    def action_plan_edge(self) -> None:
        """The last cell of the row that fits."""
        if not self._model.go_to_edge():
            self.notify("Nothing in this row fits.", timeout=2, markup=False)
        self._shared.redraw.now()

    def action_leave_plan(self) -> None:
        self._shared.screens.show(FIRST)

    # --- what is varied, and where -------------------------------------------------------------------------------

    def action_choose_axis(self, across: bool) -> None:
        """Ask what is to be varied along the columns or the rows."""
        self._choices.choose_axis(across)

    def action_choose_card(self) -> None:
        """Ask which card it has to fit."""
        self._choices.choose_card()

    def action_choose_beside(self) -> None:
        """Ask what the preset is to be set beside."""
        self._choices.choose_second()

    def action_run_on_cards(self) -> None:
        """Run a script on each of several emulated cards."""
        self._plan.ask_cards()

    def action_swap_axes(self) -> None:
        if self._model.axes:
            self._model.swap()
            self._shared.redraw.now()

    # --- the changes that free memory, and variants --------------------------------------------------------------

    def action_move_change(self, down: int) -> None:
        self.action_choose_change(self._model.choice.at(self._model.changes) + down)

    def action_choose_change(self, at: int) -> None:
        self._model.choice.go(self._model.changes, at)
        self._shared.redraw.for_key()

    def action_take_variant(self) -> None:
        """Make the cell's variant what Watch's panel shows."""
        self._variants.take_variant()

    def action_take_change(self) -> None:
        """Make the chosen change to the cell's variant."""
        self._variants.take_change()

    def action_save_variant(self) -> None:
        """Ask for a name, and save the cell's variant."""
        self._variants.save_variant()
