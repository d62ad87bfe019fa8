"""The thread that asks the source: one read at a time, none of them waited for by anybody."""

import threading
import time
from collections.abc import Callable

from textual.message import Message

from vramtui.app.messages import ReadFailed, SampleTaken, SourceStuck
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.source import Source

DEADLINE = 3.0


class Poller(threading.Thread):
    """Reads `source` every `interval` seconds and posts what comes of it. A slow read skips ticks.

    A daemon: a read that hangs in the driver holds nothing up, not even the end of the program.

    Args:
        post: takes the messages; must be safe to call from any thread.
        deadline: seconds after which a read without an answer counts as stuck.
        clock: seconds that only go up.
    """

    def __init__(
        self,
        source: Source,
        interval: float,
        post: Callable[[Message], object],
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name=f"poll {source.name}", daemon=True)
        self._source = source
        self._interval = interval
        self._post = post
        self._deadline = max(deadline, 2 * interval)
        self._clock = clock
        self._stop_asked = threading.Event()
        self._asked_at: float | None = None
        self._answered = threading.Event()
        self._first: Message | None = None

    def first_answer(self, seconds: float) -> Message | None:
        """What came of the first read, waiting for it at most `seconds`; it is posted as well."""
        return self._first if self._answered.wait(seconds) else None

    def run(self) -> None:
        """Read until told to stop."""
        while not self._stop_asked.is_set():
            begun = self._asked_at = self._clock()
            message = self._read()
            self._asked_at = None
            if not self._answered.is_set():
                self._first = message
                self._answered.set()
            if self._stop_asked.is_set():
                return
            self._post(message)
            spent = self._clock() - begun
            missed = int(spent // self._interval)
            self._stop_asked.wait((missed + 1) * self._interval - spent)

    def check(self) -> None:
        """Post SourceStuck when the read under way is past its deadline. Called from the dashboard's own clock."""
        asked_at = self._asked_at
        if asked_at is not None and self._clock() - asked_at > self._deadline:
            self._post(SourceStuck(asked_at))

    def stop(self) -> None:
        """Ask the thread to end after its present read; returns at once."""
        self._stop_asked.set()

    def _read(self) -> Message:
        try:
            return SampleTaken(self._source.read())
        except SourceFailed as failure:
            return ReadFailed(failure.message, failure.hint)
        except Exception as error:  # noqa: BLE001 - a broken source must not end the dashboard
            return ReadFailed(f"the {self._source.name} source broke: {type(error).__name__}: {error}")
