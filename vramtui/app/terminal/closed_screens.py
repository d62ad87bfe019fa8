"""Closed windows are released: without this a dashboard that runs for weeks would keep every one of them."""

import gc

from textual._styles_cache import StylesCache
from textual.await_complete import AwaitComplete

from vramtui.app.monitor.dashboard_base import DashboardBase

# Seconds after the first window closes; those that close meanwhile go with it. Collecting takes tens of milliseconds.
PATIENCE = 2.0


class ClosedScreens(DashboardBase):
    """Collects what windows leave behind.

    Their widgets point at each other in circles, which Python's own collector looks at only once in millions of new
    objects, as `run_dashboard` has it for the sake of quiet ticks. `tidying_due` says that something waits for it.
    """

    tidying_due = False

    def pop_screen(self) -> AwaitComplete:
        """Close the window in front."""
        if not self.tidying_due:
            self.tidying_due = True
            self.set_timer(PATIENCE, self.tidy)
        return super().pop_screen()

    def tidy(self) -> None:
        """Release closed windows at once."""
        self.tidying_due = False
        # It remembers colours, but by the widget's drawn lines: these would live on with it.
        StylesCache.get_inner_outer.cache_clear()
        self.forget_spots()
        gc.collect()
