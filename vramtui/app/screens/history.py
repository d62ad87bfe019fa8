"""The History screen."""

from textual.app import ComposeResult

from vramtui.app.keys import HISTORY_BINDINGS
from vramtui.app.screens.viewed import ViewScreen
from vramtui.app.widgets.header import Header
from vramtui.app.widgets.keybar import KeyBar


class HistoryScreen(ViewScreen):
    """Past runs, and how far the predictions were off."""

    DEFAULT_CSS = """
    HistoryScreen {
        layout: vertical; background: $background;
        Header { height: 1; }
        KeyBar { height: 1; dock: bottom; }
    }
    """
    BINDINGS = HISTORY_BINDINGS
    PLACE = "history"
    PANELS = (Header, KeyBar)

    def compose(self) -> ComposeResult:
        """All panels."""
        yield Header("History")
        yield KeyBar()
