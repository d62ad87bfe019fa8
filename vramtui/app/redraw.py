"""How often the screen is drawn, however often there is something new."""

from collections.abc import Callable

from vramtui.app.terminal.screen_router import ScreenRouter
from vramtui.core.schema.settings import Settings

LEAST_BETWEEN_DRAWINGS = 0.5
# A key that is held down comes 30 times a second: drawing every third of them looks as smooth and costs a third.
LEAST_BETWEEN_KEYS = 0.1


class RedrawThrottle(ScreenRouter):
    """Draws what comes by itself at most twice a second, and what keys ask for at most ten times.

    Args:
        settings: the person's.
        now: seconds that only staleness and drawing look at; tests freeze it.
    """

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        super().__init__(settings)
        self._now = now
        self._drawn_at = float("-inf")
        self._drawing_due = False
        self._key_drawn_at = float("-inf")
        self._key_due = False

    def draw_soon(self) -> None:
        """Draw now, or as soon as half a second has passed since the last time."""
        wait = self._drawn_at + LEAST_BETWEEN_DRAWINGS - self._now()
        if wait <= 0:
            self.draw()
        elif not self._drawing_due:
            self._drawing_due = True
            self.set_timer(min(wait, LEAST_BETWEEN_DRAWINGS), self.draw)

    def draw_for_key(self) -> None:
        """Draw now; while keys come fast, as soon as it is time again."""
        past = self._now() - self._key_drawn_at
        if not 0 < past < LEAST_BETWEEN_KEYS:
            self._key_drawn_at = self._now()
            self.draw()
        elif not self._key_due:
            self._key_due = True
            self.set_timer(LEAST_BETWEEN_KEYS - past, self._draw_last_key)

    def _draw_last_key(self) -> None:
        if self._key_due:
            self._key_drawn_at = self._now()
            self.draw()
