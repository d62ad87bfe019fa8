"""Workarounds for Textual 8.2, and all that this package imports of its private modules.

They are why pyproject.toml holds textual below its next minor version. A job of CI runs the tests of the screen with
the newest release, and says when the bound can be raised.

- textual/_compositor.py: the contents of an update. `cell_painter` takes it apart to send only the cells that differ.
- textual/_styles_cache.py: a cache without end, which `ClosedScreens` empties.
- textual/_xterm_parser.py: keys from bytes. `terminal_driver` tells Esc from the key behind it.
- textual/strip.py: the seven caches that each Strip makes for itself.
"""

import asyncio
import contextlib
import ctypes
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

import textual.strip
from rich.style import Style
from textual import events
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.filter import ANSIToTruecolor
from textual.geometry import Region
from textual.message_pump import MessagePump

if TYPE_CHECKING:
    from textual.app import App

__all__ = [
    "ChopsUpdate", "CompositorUpdate", "CurrentSize", "LayoutUpdate", "StylesCache", "XTermParser", "call_after",
    "forget_cut_strips",
]  # fmt: skip


class _Forgetful(dict[object, object]):
    """A cache that keeps nothing."""

    def __setitem__(self, key: object, value: object) -> None:
        """Drop the value."""


def forget_cut_strips() -> None:
    """Let no Strip cache its pieces: for one screen they take more than a megabyte, and a line is cut again only when
    the whole screen is drawn.
    """
    nothing = _Forgetful()
    setattr(textual.strip, "FIFOCache", lambda _: nothing)  # noqa: B010 - a class, as far as types go


def call_after(pump: MessagePump, seconds: float, callback: Callable[[], object]) -> None:
    """Call `callback` among the messages of `pump` in `seconds`, or as soon as there is time then.

    Textual's `set_timer` skips a timer whose time has passed when its task first runs (`Timer._run`, textual/timer.py),
    so on a busy host a short one might never be called.
    """
    asyncio.get_running_loop().call_later(seconds, pump.call_next, callback)


class CurrentSize:
    """The first base of a screen, which ignores sizes that are not the terminal's any more.

    A screen that is laid out for a size posts that size to itself. If a terminal is resized twice before that, both
    sizes are under way, each layout posts the other, and Textual lays the screen out for ever (`Screen._on_resize`,
    `Screen._refresh_layout`). The present size has been posted as well, by whatever changed it.
    """

    if TYPE_CHECKING:
        app: App[object]

    async def _on_resize(self, event: events.Resize) -> None:
        if event.size != self.app.size:
            event.prevent_default()  # keeps Textual's own handler from a layout for another size


# Caches of colours, places and looks; some keep the drawn lines of widgets: closed windows leave entries, and
# the caches would fill for hours. A few hundred entries are in use.
REMEMBERED = (
    StylesCache.get_inner_outer,
    Style._add,  # noqa: SLF001 - as are all of these
    ANSIToTruecolor.truecolor_style,
    *(one for one in vars(Region).values() if hasattr(one, "cache_clear")),
)
PATIENCE = 2.0  # seconds between the closing of the first window and the collection, which takes tens of milliseconds


class ClosedScreens:
    """Collects closed windows: their widgets reference each other in cycles, which Python's collector would visit only
    once in millions of new objects, because `run_dashboard` sets it so for quiet ticks.
    """

    __slots__ = ("_app", "_forget_spots", "due")

    def __init__(self, app: App[None], forget_spots: Callable[[], None]) -> None:
        self._app, self._forget_spots = app, forget_spots
        self.due = False

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
    give_memory_back()


def give_memory_back() -> None:
    """Return the pages that glibc keeps for later to the system; other C libraries keep none."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
