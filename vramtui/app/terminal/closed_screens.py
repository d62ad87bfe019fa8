"""Closed windows are released: without this a dashboard that runs for weeks would keep every one of them."""

import gc
from collections.abc import Callable

from textual._styles_cache import StylesCache
from textual.app import App

from vramtui.app.terminal.delayed_calls import call_after

# Seconds after the first window closes; those that close meanwhile go with it. Collecting takes tens of milliseconds.
PATIENCE = 2.0


class ClosedScreens:
    """Collects what windows leave behind.

    Their widgets point at each other in circles, which Python's own collector looks at only once in millions of new
    objects, as `run_dashboard` has it for the sake of quiet ticks.

    Args:
        app: whose windows they are.
        forget_spots: lets go of the widgets that were last on the screen.

    Attributes:
        due: something waits to be collected.
    """

    def __init__(self, app: App[None], forget_spots: Callable[[], None]) -> None:
        self._app = app
        self._forget_spots = forget_spots
        self.due = False

    def collect_soon(self) -> None:
        """A window closes."""
        if not self.due:
            self.due = True
            call_after(self._app, PATIENCE, self.collect)

    def collect(self) -> None:
        """Release closed windows at once."""
        self.due = False
        # It remembers colours, but by the widget's drawn lines: these would live on with it.
        StylesCache.get_inner_outer.cache_clear()
        self._forget_spots()
        gc.collect()
