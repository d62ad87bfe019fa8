"""The Timeline screen: the panel's preset phase by phase, and the fine trace of it."""

from textual.app import ComposeResult
from textual.containers import Container
from textual.reactive import reactive
from textual.screen import Screen

from vramtui.app.keys import TIMELINE_BINDINGS
from vramtui.app.state import View
from vramtui.app.themes import Palette
from vramtui.app.widgets.fine import FineTrace
from vramtui.app.widgets.header import Header
from vramtui.app.widgets.keybar import KeyBar
from vramtui.app.widgets.largest import Largest
from vramtui.app.widgets.phases import Phases
from vramtui.app.widgets.tracing import TraceLines

WIDE = 112
PAGES = ("phases", "trace", "largest")


class TimelineScreen(Screen[None]):
    """Bars above, the fine trace and the largest allocations below; narrow terminals turn pages with `v`."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (42, "-tall")]
    DEFAULT_CSS = """
    TimelineScreen {
        layout: vertical; background: $background;
        Header, KeyBar { height: 1; }
        #phases { height: 1fr; }
        #lower { height: 14; layout: horizontal; }
        #fine, #largest { width: 1fr; height: 100%; }
        &.-tall #lower { height: 18; }
        &.-narrow.page-phases #lower { display: none; }
        &.-narrow.page-trace #phases, &.-narrow.page-trace #largest { display: none; }
        &.-narrow.page-largest #phases, &.-narrow.page-largest #fine { display: none; }
        &.-narrow #lower { height: 1fr; }
    }
    """
    BINDINGS = TIMELINE_BINDINGS

    view: reactive[View] = reactive(View(), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__(id="timeline")
        self.add_class("page-phases")
        self.palette: Palette | None = None
        self._is_composed = False

    def compose(self) -> ComposeResult:
        """All panels."""
        yield Header("Timeline")
        yield TraceLines()
        yield Phases(id="phases")
        with Container(id="lower"):
            yield FineTrace(id="fine")
            yield Largest(id="largest")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show what there is already."""
        self._is_composed = True
        self.watch_view(self.view)
        self.query_one(Phases).focus()

    def watch_view(self, view: View) -> None:
        """Hand the view to every panel."""
        if self.palette is None or not self._is_composed:
            return
        for panel in (Header, TraceLines, Phases, FineTrace, Largest, KeyBar):
            self.query_one(panel).take(view, self.palette)

    def on_resize(self) -> None:
        """Other sizes, other panels."""
        self.call_after_refresh(self.watch_view, self.view)

    def action_page(self) -> None:
        """Turn the page."""
        at = next(i for i, page in enumerate(PAGES) if self.has_class(f"page-{page}"))
        self.remove_class(f"page-{PAGES[at]}")
        self.add_class(f"page-{PAGES[(at + 1) % len(PAGES)]}")
        self.call_after_refresh(self.watch_view, self.view)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There are pages only where not everything fits."""
        del parameters
        return action != "page" or self.has_class("-narrow")
