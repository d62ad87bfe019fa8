"""The History screen: past runs, how far the predictions were off, and what the runs teach."""

from textual.app import ComposeResult
from textual.containers import Container

from vramtui.app.history.run_errors import RunCalibration, RunErrors
from vramtui.app.history.run_table import RunTable
from vramtui.app.keys import HISTORY_BINDINGS
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.view_screen import ViewScreen

WIDE, VERY_WIDE = 112, 170


class HistoryScreen(ViewScreen):
    """Past runs, and how far the predictions were off: beside the list, or below it where the terminal is narrow."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (VERY_WIDE, "-very-wide")]
    DEFAULT_CSS = """
    HistoryScreen {
        layout: vertical; background: $background;
        Header, KeyBar { height: 1; }
        #body { height: 1fr; layout: vertical; }
        #side { height: 10; layout: horizontal; }
        RunErrors, RunCalibration { width: 1fr; height: 100%; }
        &.-wide #body, &.-very-wide #body { layout: horizontal; }
        &.-wide RunTable, &.-very-wide RunTable { width: 1fr; height: 100%; }
        &.-wide #side, &.-very-wide #side { height: 100%; layout: vertical; }
        &.-wide #side { width: 42; }
        &.-very-wide #side { width: 60; }
        &.-wide RunErrors, &.-very-wide RunErrors { width: 100%; height: 3fr; }
        &.-wide RunCalibration, &.-very-wide RunCalibration { width: 100%; height: 2fr; }
    }
    """
    BINDINGS = HISTORY_BINDINGS
    PLACE = "history"
    FIRST_FOCUS = "RunRows"

    def compose(self) -> ComposeResult:
        """All panels."""
        yield Header("History")
        with Container(id="body"):
            yield RunTable()
            with Container(id="side"):
                yield RunErrors()
                yield RunCalibration()
        yield KeyBar()
