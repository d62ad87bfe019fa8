"""Textual's private modules, as of 8.2: nothing else in this package imports one.

They are why pyproject.toml holds textual below its next minor version. A job of CI runs the tests of what is drawn on
the newest release, and says when the bound can be raised.

- textual/_compositor.py: what an update holds. `cell_diff` takes it apart to send only the cells that differ.
- textual/_styles_cache.py: a cache that never ends, which `closed_screens` empties.
- textual/_xterm_parser.py: keys from bytes. `terminal_driver` tells Esc from the key behind it.
"""

from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser

__all__ = ["ChopsUpdate", "CompositorUpdate", "LayoutUpdate", "StylesCache", "XTermParser"]
