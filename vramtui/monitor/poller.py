"""The thread that asks the source: one read at a time, none of them waited for by anybody."""

import threading
import time
from collections.abc import Callable

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.source import Source

# A read takes milliseconds, a few hundred of them on a crowded host: one that takes seconds hangs in the driver. Twice
# the interval is for those who poll so seldom that nothing they see is newer anyway.
DEADLINE = 3.0


class ReadOverdue(msgspec.Struct, frozen=True):
    """A read has not been answered within its deadline; `asked_at` is when it began, on the poller's clock."""

    asked_at: float


# What comes of a read. After ReadOverdue the answer may come yet.
ReadResult = Sample | SourceFailed | ReadOverdue


def read_deadline(interval: float) -> float:
    """Seconds after which a read without an answer is said to be overdue, everywhere in the program."""
    return max(DEADLINE, 2 * interval)


class Poller(threading.Thread):
    """Reads `source` every `interval` seconds and delivers what comes of it. A slow read skips ticks.

    A daemon: a read that hangs in the driver holds nothing up, not even the end of the program.

    Args:
        source: what is read.
        interval: seconds between reads.
        deliver: takes what comes of each read; must be safe to call from any thread.
        clock: seconds that only go up.
    """

    def __init__(
        self,
        source: Source,
        interval: float,
        deliver: Callable[[ReadResult], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name=f"poll {source.name}", daemon=True)
        self._source = source
        self._interval = interval
        self._deliver = deliver
        self._clock = clock
        self._stop_asked = threading.Event()
        self._asked_at: float | None = None
        self._answered = threading.Event()
        self._first: ReadResult | None = None

    def first_answer(self, seconds: float) -> ReadResult | None:
        """What came of the first read, waiting for it at most `seconds`; it is delivered as well."""
        return self._first if self._answered.wait(seconds) else None

    def run(self) -> None:
        """Read until told to stop."""
        while not self._stop_asked.is_set():
            begun = self._asked_at = self._clock()
            result = self._read()
            self._asked_at = None
            if not self._answered.is_set():
                self._first = result
                self._answered.set()
            if self._stop_asked.is_set():
                return
            self._deliver(result)
            spent = self._clock() - begun
            missed = int(spent // self._interval)
            self._stop_asked.wait((missed + 1) * self._interval - spent)

    def check(self) -> None:
        """Deliver ReadOverdue when the read under way is past its deadline. Called from the client's own clock."""
        asked_at = self._asked_at
        if asked_at is not None and self._clock() - asked_at > read_deadline(self._interval):
            self._deliver(ReadOverdue(asked_at))

    def stop(self) -> None:
        """Ask the thread to end after its present read; returns at once."""
        self._stop_asked.set()

    def _read(self) -> ReadResult:
        try:
            return self._source.read()
        except SourceFailed as failure:
            return failure
        except Exception as error:  # noqa: BLE001 - a broken source must not end the program
            return SourceFailed(f"the {self._source.name} source broke: {type(error).__name__}: {error}")
