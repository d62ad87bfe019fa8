"""The thread that asks the source: one read at a time, none of them waited for by anybody."""

import contextlib
import queue
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
MOST_WAITING = 120  # results that nobody took yet; of more the oldest are dropped


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
        deliver: takes what comes of each read; must be safe to call from any thread. Without it results wait for
            `deliver_to`.
        clock: seconds that only go up.
    """

    def __init__(
        self,
        source: Source,
        interval: float,
        deliver: Callable[[ReadResult], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name=f"poll {source.name}", daemon=True)
        self._source = source
        self._interval = interval
        self._waiting: queue.SimpleQueue[ReadResult] = queue.SimpleQueue()
        self._handing = threading.Lock()
        self._deliver: Callable[[ReadResult], object] = deliver or self._waiting.put
        self._clock = clock
        self._stop_asked = threading.Event()
        self._asked_at: float | None = None
        self._answered = threading.Event()
        self._first: ReadResult | None = None
        self._delivers_last = False

    def deliver_to(self, deliver: Callable[[ReadResult], object]) -> None:
        """Deliver there from now on, and first what has waited."""
        with self._handing:
            while not self._waiting.empty():
                deliver(self._waiting.get())
            self._deliver = deliver

    def first_answer(self, seconds: float) -> ReadResult | None:
        """What came of the first read, waiting for it at most `seconds`; it is delivered as well."""
        return self._first if self._answered.wait(seconds) else None

    def run(self) -> None:
        """Read until told to stop, and once at least."""
        while True:
            begun = self._asked_at = self._clock()
            result = self._read()
            self._asked_at = None
            if not self._answered.is_set():
                self._first = result
                self._answered.set()
            if self._stop_asked.is_set() and not self._delivers_last:
                return
            with self._handing:
                self._deliver(result)
            spent = self._clock() - begun
            missed = int(spent // self._interval)
            if self._stop_asked.wait((missed + 1) * self._interval - spent):
                return

    def check(self) -> None:
        """Deliver ReadOverdue when the read under way is past its deadline. Called from the client's own clock."""
        asked_at = self._asked_at
        if asked_at is not None and self._clock() - asked_at > read_deadline(self._interval):
            self._deliver(ReadOverdue(asked_at))

    def stop(self, *, deliver_last: bool = False) -> None:
        """Ask the thread to end after its present read, whose result is delivered where that is wanted; returns at
        once.
        """
        self._delivers_last = deliver_last
        self._stop_asked.set()

    def _read(self) -> ReadResult:
        try:
            return self._source.read()
        except SourceFailed as failure:
            return failure
        except Exception as error:  # noqa: BLE001 - a broken source must not end the program
            return SourceFailed(f"the {self._source.name} source broke: {type(error).__name__}: {error}")


class ReadQueue:
    """What a poller delivers, for a client with nothing else to do: it waits, and learns when a read is overdue.

    Args:
        source: what is read, from the first call of `next` on.
        interval: seconds between reads.
    """

    __slots__ = ("_poller", "_results")

    def __init__(self, source: Source, interval: float) -> None:
        self._results: queue.SimpleQueue[ReadResult | None] = queue.SimpleQueue()
        self._poller = Poller(source, interval, self._put)

    def begin(self) -> None:
        """Begin to read, unless that is done already."""
        if self._poller.ident is None:
            self._poller.start()

    def next(self, timeout: float = DEADLINE) -> ReadResult | None:
        """What came next; None where nothing did for `timeout` seconds, or the end was asked for."""
        self.begin()
        try:
            return self._results.get(timeout=max(0.0, timeout))
        except queue.Empty:
            self._poller.check()
            return None

    def sample(self, overdue: Callable[[], object]) -> Sample:
        """The latest sample that nobody took, for which it waits as long as it takes; `overdue` is called once where
        that is longer than the deadline.

        Raises:
            SourceFailed: the source can say nothing.
        """
        sample: Sample | None = None
        is_said = False
        while sample is None or not self._results.empty():
            result = self.next()
            if isinstance(result, Sample):
                sample = result
            elif isinstance(result, SourceFailed):
                raise result
            elif result is not None and not is_said:
                is_said = True
                overdue()
        return sample

    def _put(self, result: ReadResult) -> None:
        # A client may wait for a disk, or for whoever reads its output.
        while self._results.qsize() >= MOST_WAITING:
            with contextlib.suppress(queue.Empty):
                self._results.get_nowait()
        self._results.put(result)

    def wake(self) -> None:
        """Let whoever waits wait no more; to be called from anywhere, also from a signal handler."""
        self._results.put(None)  # a SimpleQueue may be put into wherever the signal came

    def close(self) -> None:
        """Read no more; nothing is waited for."""
        self._poller.stop()
