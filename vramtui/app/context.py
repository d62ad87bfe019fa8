"""What the dashboard hands to each of its features."""

from collections.abc import Callable
from dataclasses import dataclass

from textual.app import App

from vramtui.app.redraw import RedrawThrottle
from vramtui.app.screens import ScreenRouter
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.ui.notice_line import NoticeLine

CHOOSE_PRESET = "Choose a preset first: p"


@dataclass(frozen=True)
class AppContext:
    """The parts of the dashboard that features share.

    Attributes:
        app: Textual's own side of it: notifications, windows, timers, and `call_later`, which any thread may call.
        state: what was seen and what a person chose.
        redraw: draws it, at once or soon.
        screens: the whole screens.
        clock: seconds since the epoch; tests freeze it.
        interval: seconds between reads.
        notices: what was said lately.
    """

    app: App[None]
    state: DashboardState
    redraw: RedrawThrottle
    screens: ScreenRouter
    clock: Callable[[], float]
    interval: float
    notices: NoticeLine
