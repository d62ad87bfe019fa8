"""How often the screen is drawn, however often there is something new."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.app import App

from vramtui.app.terminal.textual_private import call_after

LEAST_BETWEEN_DRAWINGS = 0.5
LEAST_DETACHED = 5.0  # nobody sees it; who attaches again sees at once what was drawn last, and soon what is
LEAST_UNFOCUSED = 2.0  # in a terminal that says that it has lost the focus: who looks beside other work sees it move
# A key that is held down comes 30 times a second: drawing every third of them looks as smooth and costs a third.
LEAST_BETWEEN_KEYS = 0.1
# Seconds; a late answer is told that much after it is one. By a timer of Textual's, which is skipped where it comes too
# late itself, it was twice as much on a busy host.
LOOK_EVERY = 0.2
LOOK_AT_LEAST = 60.0  # a clock may be set


class RedrawThrottle:
    """Draws what comes by itself at most twice a second (every two seconds where the terminal has no focus, every five
    where it is detached), and what keys ask for at most ten times.

    Args:
        app: whose timers wait.
        draw: shows everything as it is now; tells by `drawn` that it did.
        now: seconds that only staleness and drawing look at; tests freeze it.
    """

    __slots__ = ("_app", "_clock", "_drawn_at", "_due", "_key_drawn_at", "_key_due", "now")

    def __init__(self, app: App[Any], draw: Callable[[], None], now: Callable[[], float]) -> None:
        self._app = app
        self.now = draw
        self._clock = now
        self._drawn_at = float("-inf")
        self._due = False
        self._key_drawn_at = float("-inf")
        self._key_due = False

    def soon(self) -> None:
        """Draw now, or as soon as enough time has passed since the last time."""
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
        """Draw at the beginning of each second while `late` says so; `until_late` are the seconds for which it surely
        does not.
        """

        def look() -> None:
            if not self._app.is_running:
                return
            if late() and int(self._clock()) != int(max(self._drawn_at, 0.0)):
                self.now()
            call_after(self._app, min(max(until_late(), LOOK_EVERY), LOOK_AT_LEAST), look)

        look()

    def for_key(self) -> None:
        """Draw now; while keys come fast, as soon as it is time again."""
        past = self._clock() - self._key_drawn_at
        if not 0 < past < LEAST_BETWEEN_KEYS:
            self._key_drawn_at = self._clock()
            self.now()
        elif not self._key_due:
            self._key_due = True
            call_after(self._app, LEAST_BETWEEN_KEYS - past, self._last_key)

    def begins(self) -> None:
        """Everything is drawn now: nothing is due any more."""
        self._due = self._key_due = False

    def is_drawn(self) -> None:
        """A sample was on the screen at this time."""
        self._drawn_at = self._clock()

    def _last_key(self) -> None:
        if self._key_due:
            self._key_drawn_at = self._clock()
            self.now()


def is_detached(multiplexer: str) -> bool:
    """Whether nobody is attached to the tmux that this runs in.

    Args:
        multiplexer: what tmux puts into TMUX: the path of its socket, its pid and a session, with commas between them.
    """
    path = multiplexer.rsplit(",", 2)[0]
    try:
        # The server takes the right to execute from its socket while it has no client: server_update_socket() in
        # server.c of tmux 3.3.
        return bool(path) and not Path(path).stat().st_mode & stat.S_IXUSR
    except OSError:
        return False
