"""The Plan screen."""

from textual.app import ComposeResult

from vramtui.app.keys import PLAN_BINDINGS
from vramtui.app.screens.viewed import ViewScreen
from vramtui.app.widgets.header import Header
from vramtui.app.widgets.keybar import KeyBar


class PlanScreen(ViewScreen):
    """What fits where, before it runs."""

    DEFAULT_CSS = """
    PlanScreen {
        layout: vertical; background: $background;
        Header { height: 1; }
        KeyBar { height: 1; dock: bottom; }
    }
    """
    BINDINGS = PLAN_BINDINGS
    PLACE = "plan"
    PANELS = (Header, KeyBar)

    def compose(self) -> ComposeResult:
        """All panels."""
        yield Header("Plan")
        yield KeyBar()
