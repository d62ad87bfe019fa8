"""The Timeline screen: the panel's preset phase by phase, and the fine trace of it."""

from textual.app import ComposeResult
from textual.containers import Container

from vramtui.app.keys import TIMELINE_BINDINGS
from vramtui.app.state import View
from vramtui.app.themes import Palette
from vramtui.app.timeline.allocations import Largest
from vramtui.app.timeline.fine_trace import FineTrace
from vramtui.app.timeline.phases import PhaseBars
from vramtui.app.timeline.status import TraceLines
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.view_screen import ViewScreen

WIDE = 112


class TimelineScreen(ViewScreen):
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
        &.-wide.-low.-untraced #lower { height: 5; }
        &.-narrow.page-phases #lower { display: none; }
        &.-narrow.page-trace #phases, &.-narrow.page-trace #largest { display: none; }
        &.-narrow.page-largest #phases, &.-narrow.page-largest #fine { display: none; }
        &.-narrow #lower { height: 1fr; }
    }
    """
    BINDINGS = TIMELINE_BINDINGS
    PLACE = "timeline"
    PAGES = ("phases", "trace", "largest")
    FIRST_FOCUS = "PhaseBars"

    def compose(self) -> ComposeResult:
        """All panels."""
        yield Header("Timeline")
        yield TraceLines()
        yield PhaseBars(id="phases")
        with Container(id="lower"):
            yield FineTrace(id="fine")
            yield Largest(id="largest")
        yield KeyBar()

    def show(self, view: View, palette: Palette) -> None:
        """Draw `view`; what a trace would show has little room until there is one."""
        timeline = view.timeline
        self.set_class(timeline.result is None and not timeline.running, "-untraced")
        super().show(view, palette)
