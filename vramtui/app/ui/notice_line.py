"""What the program has to say, in the line of the keys: never over what somebody is looking at.

Textual shows notifications as toasts, which lie over the table and the graph for as long as they last. Here the newest
stands in the last line until its time is over, and all of them among the alerts and errors (`!`).
"""

from collections import deque
from collections.abc import Callable

from textual.app import App
from textual.notifications import Notification

from vramtui.app.terminal.delayed_calls import call_after
from vramtui.app.ui.keybar import KeyBar

KEPT = 30


def one_line(note: Notification) -> str:
    """Title and message of a notification, without line breaks."""
    title = note.title.rstrip(".:")
    message = " · ".join(note.message.split("\n"))
    return f"{title}: {message}" if title else message


class NoticeLine:
    """Follows an app's notifications.

    Args:
        app: whose they are.
        clock: seconds since the epoch.

    Attributes:
        said: the latest, the newest last: seconds since the epoch, and what was said.
    """

    def __init__(self, app: App[None], clock: Callable[[], float]) -> None:
        self._app = app
        self._clock = clock
        self._newest: Notification | None = None
        self.said: deque[tuple[float, str]] = deque(maxlen=KEPT)

    def refresh(self) -> None:
        """Show the newest that is not over, in every key bar there is; the keys again where there is none."""
        if self._app._disable_notifications:  # noqa: SLF001 - as below
            return
        notes = list(self._app._notifications)  # noqa: SLF001 - Textual has no public list of them
        newest = max(notes, key=lambda note: note.raised_at, default=None)
        if newest is not None and newest is not self._newest:
            self.said.append((self._clock(), one_line(newest)))
            call_after(self._app, newest.time_left + 0.1, self.refresh)
        self._newest = newest
        for screen in self._app.screen_stack:
            for bar in screen.query(KeyBar):
                bar.say(None if newest is None else (newest.severity, one_line(newest)))
