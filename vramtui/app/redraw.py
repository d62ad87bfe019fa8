"""How often the screen is drawn, however often there is something new."""

from collections.abc import Callable
from typing import Any

from textual.app import App

from vramtui.app.terminal.delayed_calls import call_after

LEAST_BETWEEN_DRAWINGS = 0.5
# A key that is held down comes 30 times a second: drawing every third of them looks as smooth and costs a third.
LEAST_BETWEEN_KEYS = 0.1
# Seconds; a late answer is told that much after it is one. By a timer of Textual's, which is skipped where it comes too
# late itself, it was twice as much on a busy host.
LOOK_EVERY = 0.2


class RedrawThrottle:
    """Draws what comes by itself at most twice a second, and what keys ask for at most ten times.

    Args:
        app: whose timers wait.
        draw: shows everything as it is now; tells by `drawn` that it did.
        now: seconds that only staleness and drawing look at; tests freeze it.
    """

    def __init__(self, app: App[Any], draw: Callable[[], None], now: Callable[[], float]) -> None:
        self._app = app
        self.now = draw
        self._clock = now
        self._drawn_at = float("-inf")
        self._due = False
        self._key_drawn_at = float("-inf")
        self._key_due = False

    def soon(self) -> None:
        """Draw now, or as soon as half a second has passed since the last time."""
        wait = self._drawn_at + LEAST_BETWEEN_DRAWINGS - self._clock()
        if wait <= 0:
            self.now()
        elif not self._due:
            self._due = True
            call_after(self._app, min(wait, LEAST_BETWEEN_DRAWINGS), self.now)

    def every_second(self, wanted: Callable[[], object]) -> None:
        """From now on draw as soon as it is another second than when that was done last, while `wanted` says so."""

        def look() -> None:
            if not self._app.is_running:
                return
            if wanted() and int(self._clock()) != int(max(self._drawn_at, 0.0)):
                self.now()
            call_after(self._app, LOOK_EVERY, look)

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
