"""Textual's private modules, as of 8.2: nothing else in this package imports one.

They are why pyproject.toml holds textual below its next minor version. A job of CI runs the tests of what is drawn on
the newest release, and says when the bound can be raised.

- textual/_compositor.py: what an update holds. `cell_diff` takes it apart to send only the cells that differ.
- textual/_styles_cache.py: a cache that never ends, which `closed_screens` empties.
- textual/_xterm_parser.py: keys from bytes. `terminal_driver` tells Esc from the key behind it.
- textual/strip.py: the seven caches that each Strip makes for itself.
"""

from typing import Any

import textual.strip
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser

__all__ = ["ChopsUpdate", "CompositorUpdate", "LayoutUpdate", "StylesCache", "XTermParser", "forget_cut_strips"]


class _Forgetful:
    """A cache that keeps nothing."""

    def get(self, key: object, default: Any = None) -> Any:  # noqa: ANN401 - whatever is asked for
        """What stands for a miss."""
        del key
        return default

    def __setitem__(self, key: object, value: object) -> None:
        """Drop the value; nothing is kept."""


def forget_cut_strips() -> None:
    """Let no Strip keep the pieces that were cut of it: the caches of those on one screen take more than a megabyte,
    and a line is cut again only where all of the screen is drawn.
    """
    nothing = _Forgetful()
    setattr(textual.strip, "FIFOCache", lambda _: nothing)  # noqa: B010 - a class, as far as types go
