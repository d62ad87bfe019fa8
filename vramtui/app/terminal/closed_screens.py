"""Closed windows are released: without this a dashboard that runs for weeks would keep every one of them."""

import contextlib
import ctypes
import gc
from collections.abc import Callable

from rich.style import Style
from textual.app import App
from textual.filter import ANSIToTruecolor
from textual.geometry import Region

from vramtui.app.terminal import style_codes
from vramtui.app.terminal.delayed_calls import call_after
from vramtui.app.terminal.textual_private import StylesCache

# What is remembered for good of colours, by the drawn lines of widgets, which would live on with it, and of places and
# looks: windows leave some of theirs, and it would go on filling for hours. What is there needs a few hundred of them.
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
    style_codes.transition_of_codes,
)
# Seconds after the first window closes; those that close meanwhile go with it. Collecting takes tens of milliseconds.
PATIENCE = 2.0
STARTED = 5.0  # seconds after which all that a start needs once has come and gone


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

    __slots__ = ("_app", "_forget_spots", "due")

    def __init__(self, app: App[None], forget_spots: Callable[[], None]) -> None:
        self._app = app
        self._forget_spots = forget_spots
        self.due = False

    def give_back_what_starting_took(self) -> None:
        """The presets are read: what is left to do at a start takes little."""
        call_after(self._app, STARTED, _give_memory_back)

    def collect_soon(self) -> None:
        """A window closes."""
        if not self.due:
            self.due = True
            call_after(self._app, PATIENCE, self.collect)

    def collect(self) -> None:
        self.due = False
        for function in REMEMBERED:
            function.cache_clear()
        for screen in self._app.screen_stack:
            # What `query_one` found, under a number that changes with every widget that comes or goes.
            screen._query_one_cache.clear()  # noqa: SLF001 - as above
            # Each input stays subscribed for good, as its callback holds it (Input._on_mount of Textual 8.2).
            signal = screen.text_selection_started_signal
            for node in [one for one in signal._subscriptions if not one.is_attached]:  # noqa: SLF001 - as above
                signal.unsubscribe(node)
        self._forget_spots()
        collect_garbage()


def collect_garbage() -> None:
    """Let go of what points at itself in circles, and let the system have what is free."""
    gc.collect()
    _give_memory_back()


def _give_memory_back() -> None:
    """Let the system have the pages that the C library keeps for later; one that is not glibc keeps none so."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
