"""Workarounds for Textual 8.2, and all that this package imports of its private modules.

They are why pyproject.toml holds textual below its next minor version. A job of CI runs the tests of the screen with
the newest release, and says when the bound can be raised.

- textual/_compositor.py: the contents of an update. `cell_diff` takes it apart to send only the cells that differ.
- textual/_styles_cache.py: a cache without end, which `closed_screens` empties.
- textual/_xterm_parser.py: keys from bytes. `terminal_driver` tells Esc from the key behind it.
- textual/strip.py: the seven caches that each Strip makes for itself.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import textual.strip
from textual import events
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser
from textual.message_pump import MessagePump

if TYPE_CHECKING:
    from textual.app import App

__all__ = [
    "ChopsUpdate", "CompositorUpdate", "CurrentSize", "LayoutUpdate", "StylesCache", "XTermParser", "call_after",
    "forget_cut_strips",
]  # fmt: skip


class _Forgetful:
    """A cache that keeps nothing."""

    def get(self, key: object, default: Any = None) -> Any:  # noqa: ANN401 - whatever is asked for
        del key
        return default

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
