"""Lines out of what a pipe gives, piece by piece, and the newest sample of somebody who sends them, and how old it may
be.
"""

import threading
import time
from collections.abc import Callable

from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.file_limits import RECORDING
from vramtui.core.observation.readings import Sample


class LatestSample:
    """One thread delivers, another reads: each sample once, and never one for the second time as if it were new.

    How long ago something came is measured on this machine's own clock; the sender's may be wrong.

    Args:
        name: how sentences call the sender.
        clock: seconds that only go up.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._clock = clock
        self._changed = threading.Condition()
        self._sample: Sample | None = None
        self._failure: SourceFailed | None = None
        self._since = clock()
        self._has_come = False

    def deliver(self, sample: Sample) -> None:
        """Store the sample that has just arrived."""
        with self._changed:
            self._sample, self._failure = sample, None
            self._since, self._has_come = self._clock(), True
            self._changed.notify_all()

    def fail(self, failure: SourceFailed) -> None:
        """Store a failure: nothing more comes until the next `deliver`."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    @property
    def age(self) -> float | None:
        """Seconds since the latest one came; None where none has."""
        with self._changed:
            return self._clock() - self._since if self._has_come else None

    def next(self, limit: float, first: float) -> Sample:
        """The newest one that nobody has read, for which it waits.

        Args:
            limit: seconds after the one before.
            first: seconds for which the first one is waited for.

        Raises:
            SourceFailed: it fails, or there was none in that time.
        """
        with self._changed:
            while self._sample is None:
                if self._failure is not None:
                    raise SourceFailed(self._failure.message, self._failure.hint)
                limit_now = limit if self._has_come else first
                left = self._since + limit_now - self._clock()
                if left <= 0:
                    raise SourceFailed(f"{self.name} has sent nothing for {self._clock() - self._since:.0f} s.")
                self._changed.wait(left)
            sample, self._sample = self._sample, None
            return sample


class LineTooLargeError(Exception):
    """A line of more than RECORDING.size bytes: what sends it is no recording."""


class LineSplitter:
    """Keeps what has no newline yet."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` completes, without their newlines.

        Raises:
            LineTooLargeError: one does not end.
        """
        if b"\n" not in piece:
            self._rest += piece
            if len(self._rest) > RECORDING.size:
                raise LineTooLargeError
            return []
        first, *lines = piece.split(b"\n")
        lines.insert(0, bytes(self._rest) + first)
        self._rest = bytearray(lines.pop())
        return lines
