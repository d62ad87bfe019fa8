"""How often the screen is drawn."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.app import App

from vramtui.app.terminal.textual_private import call_after

LEAST_BETWEEN_DRAWINGS = 0.5
LEAST_DETACHED = 5.0  # in a detached multiplexer
LEAST_UNFOCUSED = 2.0  # in a terminal that reports the loss of the focus
# A key that is held down comes 30 times a second: drawing every third looks as smooth and costs a third.
LEAST_BETWEEN_KEYS = 0.1
LOOK_EVERY = 0.2  # seconds until a late answer is noticed; Textual's own timers may be skipped
LOOK_AT_LEAST = 60.0  # a clock may be set


class RedrawThrottle:
    """Draws for samples up to twice a second (every two seconds without the focus, every five if detached), and for
    keys up to ten times.

    Args:
        app: whose timers wait.
        draw: draws everything; calls `begins` and `is_drawn`.
        now: a clock in seconds, only for staleness and drawing; tests freeze it.
    """

    __slots__ = ("_app", "_clock", "_drawn_at", "_due", "_key_drawn_at", "_key_due", "now")

    def __init__(self, app: App[Any], draw: Callable[[], None], now: Callable[[], float]) -> None:
        self._app, self.now, self._clock = app, draw, now
        self._drawn_at = self._key_drawn_at = float("-inf")
        self._due = self._key_due = False

    def soon(self) -> None:
        """Draw now, or once enough time has passed since the last drawing."""
        least = LEAST_BETWEEN_DRAWINGS if self._app.app_focus else LEAST_UNFOCUSED
        if is_detached(os.environ.get("TMUX", "")):
            least = LEAST_DETACHED
        wait = self._drawn_at + least - self._clock()
        if wait <= 0:
            self.now()
        elif not self._due:
            self._due = True
            call_after(self._app, min(wait, least), self.now)

    def watch_clock(self, late: Callable[[], object], until_late: Callable[[], float]) -> None:
        """Draw at the beginning of each second while `late`, which cannot be true for `until_late` seconds."""

        def look() -> None:
            if not self._app.is_running:
                return
            if late() and int(self._clock()) != int(max(self._drawn_at, 0.0)):
                self.now()
            call_after(self._app, min(max(until_late(), LOOK_EVERY), LOOK_AT_LEAST), look)

        look()

    def for_key(self) -> None:
        """Draw now; while keys come fast, once it is time again."""
        past = self._clock() - self._key_drawn_at
        if not 0 < past < LEAST_BETWEEN_KEYS:
            self._key_drawn_at = self._clock()
            self.now()
        elif not self._key_due:
            self._key_due = True

            def last_key() -> None:
                if self._key_due:
                    self._key_drawn_at = self._clock()
                    self.now()

            call_after(self._app, LEAST_BETWEEN_KEYS - past, last_key)

    def begins(self) -> None:
        """Note that everything is drawn now, so nothing is due."""
        self._due = self._key_due = False

    def is_drawn(self) -> None:
        """Note that a sample is on the screen now."""
        self._drawn_at = self._clock()


def is_detached(multiplexer: str) -> bool:
    """Return whether no client is attached to tmux; `multiplexer` is the value of TMUX: socket, pid and session, with
    commas between them.
    """
    path = multiplexer.rsplit(",", 2)[0]
    try:
        # Without a client the server's socket is not executable: server_update_socket() in server.c of tmux 3.3.
        return bool(path) and not Path(path).stat().st_mode & stat.S_IXUSR
    except OSError:
        return False
