"""Recording what is watched, on a thread of its own: a disk may be slow, full or gone, and nothing waits for it."""

import queue
import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.snapshot import RecordedTick

MOST_WAITING = 120  # samples that may wait for the disk


class RecordingSink(Protocol):
    """A recording that is being written. It is used from one thread only, and may take its time."""

    @property
    def where(self) -> str: ...

    def write(self, tick: RecordedTick) -> None:
        """Add one moment.

        Raises:
            UserError: it cannot be written.
        """
        ...

    def close(self) -> None:
        """End the file.

        Raises:
            UserError: it cannot be written.
        """
        ...


class RecordingFactory(Protocol):
    """Starts a recording when asked."""

    def __call__(self, first: Sample, interval: float, /) -> RecordingSink:
        """A new recording that begins at the time of `first`; `interval` in seconds.

        Raises:
            UserError: there can be none.
        """
        ...


class RecordingResult(msgspec.Struct, frozen=True):
    """A recording is over: `where` it is, how many samples are in it, how many were dropped, and what went wrong."""

    where: str
    samples: int
    dropped: int
    problem: str = ""


Deliver = Callable[["RecorderThread", RecordingResult], object]


class RecorderThread(threading.Thread):
    """Writes what it is given, one after another, and delivers a RecordingResult when it is over.

    Args:
        recorder: begins the recording, on this thread.
        interval: seconds between samples.
        deliver: takes the result and this thread; must be safe to call from any thread.
    """

    def __init__(self, recorder: RecordingFactory, interval: float, deliver: Deliver) -> None:
        super().__init__(name="record", daemon=True)
        self._recorder = recorder
        self._interval = interval
        self._deliver = deliver
        self._waiting: queue.Queue[RecordedTick | None] = queue.Queue(MOST_WAITING + 1)
        self.began: float | None = None
        self.dropped = 0
        self.written = 0
        self.where = ""

    def put(self, tick: RecordedTick) -> None:
        """Record this too; it is dropped, and counted, where the disk does not keep up. Never waits."""
        if self.began is None:
            self.began = tick.sample.taken_at
        # One place is kept for the word that it is over.
        if self._waiting.qsize() >= MOST_WAITING:
            self.dropped += 1
        else:
            self._waiting.put_nowait(tick)

    def finish(self) -> None:
        """End the recording after what was put; returns at once."""
        self._waiting.put_nowait(None)

    def run(self) -> None:
        """Write until told to finish, or until it cannot be written."""
        problem = ""
        sink: RecordingSink | None = None
        try:
            while (tick := self._waiting.get()) is not None:
                if sink is None:
                    sink = self._recorder(tick.sample, self._interval)
                    self.where = sink.where
                sink.write(tick)
                self.written += 1
        except (UserError, OSError) as error:
            problem = str(error)
        if sink is not None:
            try:
                sink.close()
            except (UserError, OSError) as error:
                problem = problem or str(error)
        self._deliver(self, RecordingResult(self.where, self.written, self.dropped, problem))
