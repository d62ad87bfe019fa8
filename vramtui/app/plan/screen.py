"""The Plan screen: a map of what fits a card, the parts of one cell of it, and the planner's words."""

from textual.app import ComposeResult
from textual.containers import Container

from vramtui.app.keys import PLAN_BINDINGS
from vramtui.app.plan.widgets.advice import PlanWords
from vramtui.app.plan.widgets.bar import PlanBar
from vramtui.app.plan.widgets.heatmap import Heatmap, SecondHeatmap
from vramtui.app.plan.widgets.parts import PlanParts
from vramtui.app.state import View
from vramtui.app.themes import Palette
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.view_screen import ViewScreen

WIDE, WIDEST = 112, 170


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

    def compose(self) -> ComposeResult:
        """All panels."""
        yield Header("Plan")
        yield PlanBar()
        with Container(id="maps"):
            yield Heatmap(id="map")
            yield SecondHeatmap(id="second")
        with Container(id="lower"):
            yield PlanParts(id="parts")
            yield PlanWords(id="words")
        yield KeyBar()

    def show(self, view: View, palette: Palette) -> None:
        """Make room for a second map where there is one, and draw."""
        beside = view.plan is not None and len(view.plan.maps) > 1
        if beside != self.has_class("-beside"):
            self.set_class(beside, "-beside")
            if not beside and self.has_class("page-second"):
                self._turn_to("map")
            self.call_after_refresh(self.watch_view, view)
        super().show(view, palette)

    @property
    def pages(self) -> tuple[str, ...]:
        """The pages there are now."""
        if self.has_class("-widest"):
            return ("map",)
        parts = ("parts",) if self.has_class("-narrow") else ()
        second = ("second",) if self.has_class("-beside") else ()
        return ("map", *parts, *second)

    def action_page(self) -> None:
        """Turn the page."""
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
        """There are pages only where not everything fits."""
        del parameters
        if action == "changes":
            return self.view.plan is not None and bool(self.view.plan.maps)
        return action != "page" or len(self.pages) > 1
