"""Releases closed windows: without this a dashboard that runs for weeks would keep all of them."""

import contextlib
import ctypes
import gc
from collections.abc import Callable

from rich.style import Style
from textual.app import App
from textual.filter import ANSIToTruecolor
from textual.geometry import Region

from vramtui.app.terminal.cell_diff import transition_of_codes
from vramtui.app.terminal.textual_private import StylesCache, call_after

# Caches of colours, places and looks; some keep the drawn lines of widgets: closed windows leave entries, and
# the caches would fill for hours. A few hundred entries are in use.
REMEMBERED = (
    StylesCache.get_inner_outer,
    Style._add,  # noqa: SLF001 - as are all of these
    ANSIToTruecolor.truecolor_style,
    Region.contains_region,
    Region.grow,
    Region.intersection,
    Region.overlaps,
    Region.shrink,
    Region.translate,
    Region.union,
    transition_of_codes,
)
# Seconds between the closing of the first window and the collection, which takes tens of milliseconds.
PATIENCE = 2.0
STARTED = 5.0  # seconds after which memory that only a start needs is free


class ClosedScreens:
    """Collects closed windows: their widgets reference each other in cycles, which Python's collector would visit only
    once in millions of new objects, because `run_dashboard` sets it so for quiet ticks.

    Args:
        app: the app.
        forget_spots: releases the widgets that were last on the screen.

    Attributes:
        due: a collection is due.
    """

    __slots__ = ("_app", "_forget_spots", "due")

    def __init__(self, app: App[None], forget_spots: Callable[[], None]) -> None:
        self._app, self._forget_spots = app, forget_spots
        self.due = False

    def give_back_what_starting_took(self) -> None:
        call_after(self._app, STARTED, _give_memory_back)

    def collect_soon(self) -> None:
        if not self.due:
            self.due = True
            call_after(self._app, PATIENCE, self.collect)

    def collect(self) -> None:
        self.due = False
        for function in REMEMBERED:
            function.cache_clear()
        for screen in self._app.screen_stack:
            # The results of `query_one`, by a number that changes with every widget that comes or goes.
            screen._query_one_cache.clear()  # noqa: SLF001 - as above
            # Each input stays subscribed for good, as its callback holds it (Input._on_mount of Textual 8.2).
            signal = screen.text_selection_started_signal
            for node in [one for one in signal._subscriptions if not one.is_attached]:  # noqa: SLF001 - as above
                signal.unsubscribe(node)
        self._forget_spots()
        collect_garbage()


def collect_garbage() -> None:
    """Collect reference cycles, and return free memory to the system."""
    gc.collect()
    _give_memory_back()


def _give_memory_back() -> None:
    """Return the pages that glibc keeps for later to the system; other C libraries keep none."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
