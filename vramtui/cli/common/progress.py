"""How far the reading of a long file is, on a terminal."""

import sys
import time
from pathlib import Path

from vramtui.core.base.text import printable

MOMENT = 0.6  # seconds that nothing is said
BETWEEN = 0.3


class ReadingProgress:
    """Says how much of the file at `path` is read, where that takes longer than a moment."""

    def __init__(self, path: Path) -> None:
        self._name = printable(path.name)
        self._next = time.monotonic() + MOMENT
        self._said = False

    def __call__(self, fraction: float) -> None:
        """So much is read, from 0 to 1."""
        if time.monotonic() >= self._next and sys.stderr.isatty():
            self._next = time.monotonic() + BETWEEN
            self._said = True
            sys.stderr.write(f"\r\x1b[Kreading {self._name}: {fraction:.0%}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._said:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
