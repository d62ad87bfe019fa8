"""The Watch screen: GPUs, processes, the chosen one's memory, and a preset's estimate beside it."""

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from vramtui.app.keys import WATCH_BINDINGS
from vramtui.app.state import View
from vramtui.app.themes import Palette
from vramtui.app.ui.banner import Banner
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.app.watch.estimate_panel import EstimatePanel
from vramtui.app.watch.gpu_panel import GpuPanel
from vramtui.app.watch.memory_graph import MemoryGraph
from vramtui.app.watch.process_table import ProcessTable

WIDE, VERY_WIDE = 112, 170
BESIDE = {VERY_WIDE: 68, WIDE: 50, 0: 0}


class Watch(ViewScreen):
    """Everything that is seen now. Its `view` is set once a tick, and every panel draws its part of it.

    Wide terminals show all panels; narrow and low ones some of them, and `v` turns the page.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (VERY_WIDE, "-very-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (28, "-medium"), (42, "-tall")]
    DEFAULT_CSS = """
    Watch {
        layout: vertical; background: $background;
        Header, KeyBar { height: 1; }
        #body { height: 1fr; layout: vertical; }
        #left { height: 1fr; width: 1fr; }
        #estimate { height: auto; min-height: 8; }
        &.-wide #body, &.-very-wide #body { layout: horizontal; }
        &.-wide #estimate { width: 50; height: 100%; }
        &.-very-wide #estimate { width: 68; height: 100%; }
        &.-medium #graph { height: 10; }
        &.-tall #graph { height: 30%; }
        &.-narrow.-low.page-processes #estimate, &.-narrow.-medium.page-processes #estimate { display: none; }
        &.-narrow.-low.page-processes #graph { display: none; }
        &.-narrow.page-estimate #estimate { height: 1fr; }
        &.-narrow.page-estimate #left { height: auto; }
        &.-narrow.page-estimate #table, &.-narrow.page-estimate #graph { display: none; }
        &.-narrow.page-memory #table, &.-narrow.page-memory #estimate { display: none; }
        &.-narrow.page-memory #graph { height: 1fr; }
        &.-narrow.-tall #estimate { height: 22; }
    }
    """
    BINDINGS = WATCH_BINDINGS
    PLACE = "watch"
    PAGES = ("processes", "estimate", "memory")
    FIRST_FOCUS = "Rows"

    def compose(self) -> ComposeResult:
        """All panels."""
        yield Header()
        yield Banner()
        with Container(id="body"):
            with Vertical(id="left"):
                yield GpuPanel(id="gpus")
                yield ProcessTable(id="table")
                yield MemoryGraph(id="graph")
            yield EstimatePanel(id="estimate")
        yield KeyBar()

    def show(self, view: View, palette: Palette) -> None:
        """Give banner and GPUs the lines they need, then draw."""
        self._fit_heights(view)
        super().show(view, palette)

    def _fit_heights(self, view: View) -> None:
        """Give banner and GPU panel the lines they need; a layout only where that changed."""
        banner, gpus = self.query_one(Banner), self.query_one(GpuPanel)
        width, height = self.app.size
        _set_height(banner, banner.lines_for(view, width), border=0)
        most = max(2, (height - 4) * 2 // 5)
        beside = next(taken for least, taken in BESIDE.items() if width >= least)
        _set_height(gpus, gpus.lines_for(view, width - beside - 2, most), border=2)


def _set_height(widget: Banner | GpuPanel, lines: int, *, border: int) -> None:
    wanted = lines + border if lines else 0
    current = widget.styles.height
    if current is None or current.value != wanted or not current.is_cells:
        widget.styles.height = wanted
    if widget.display != bool(wanted):
        widget.display = bool(wanted)
