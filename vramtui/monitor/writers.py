"""Threads that write recordings and runs: a disk may be slow, locked or full, and nothing else waits for it."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from vramtui import __version__
from vramtui.core.base.errors import UserError
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.snapshot import RecordedTick

if TYPE_CHECKING:
    from vramtui.core.runs.run import Run

MOST_WAITING = 120  # samples that may wait for the disk
MOST_RUNS_WAITING = 4096


class RecordingSink(Protocol):
    """A recording in progress, used from one thread. Its methods raise UserError if they cannot write."""

    @property
    def where(self) -> str: ...

    def write(self, tick: RecordedTick) -> None: ...

    def close(self) -> None: ...


# Starts a recording at the time of a sample, with an interval in seconds; raises UserError if there can be none.
RecordingFactory = Callable[[Sample, float], RecordingSink]


class RecorderThread(threading.Thread):
    """Writes the samples it is given. `recorder` begins the recording on this thread; `deliver` takes the thread at the
    end, and must be safe to call from any thread.

    Attributes:
        where: the place of the recording.
        written, dropped: samples.
        problem: why it ended; empty if it was asked to.
    """

    def __init__(
        self, recorder: RecordingFactory, interval: float, deliver: "Callable[[RecorderThread], object]"
    ) -> None:
        super().__init__(name="record", daemon=True)
        self._recorder, self._interval, self._deliver = recorder, interval, deliver
        self._waiting: queue.Queue[RecordedTick | None] = queue.Queue(MOST_WAITING + 1)
        self.began: float | None = None
        self.dropped = 0
        self.written = 0
        self.where = self.problem = ""

    def put(self, tick: RecordedTick) -> None:
        """Record this tick too, without waiting; if the disk does not keep up, it is dropped and counted."""
        if self.began is None:
            self.began = tick.sample.taken_at
        if self._waiting.qsize() >= MOST_WAITING:  # one place is left for the end
            self.dropped += 1
        else:
            self._waiting.put_nowait(tick)

    def finish(self) -> None:
        """End the recording after what was put; return at once."""
        self._waiting.put_nowait(None)

    def run(self) -> None:
        sink: RecordingSink | None = None
        try:
            while (tick := self._waiting.get()) is not None:
                if sink is None:
                    sink = self._recorder(tick.sample, self._interval)
                    self.where = sink.where
                sink.write(tick)
                self.written += 1
        except (UserError, OSError) as error:
            self.problem = str(error)
        if sink is not None:
            try:
                sink.close()
            except (UserError, OSError) as error:
                self.problem = self.problem or str(error)
        self._deliver(self)


class RunHistoryFile(Protocol):
    def keep(self, run: "Run", /) -> object:
        """Add a run or replace it; raise UserError if it cannot be written."""


class HistoryRunWriter:
    """Keeps the latest state of each run without holding the dashboard up. A failed write is tried again later, and
    `problem` says why. The history is opened when the first run is kept.
    """

    __slots__ = ("_asked", "_changed", "_done", "_open_history", "_thread", "_waiting", "problem")

    def __init__(self, open_history: Callable[[], RunHistoryFile]) -> None:
        self._open_history = open_history
        self._waiting: dict[str, Run] = {}
        self._changed = threading.Condition()
        self._asked = self._done = 0
        self._thread: threading.Thread | None = None
        self.problem = ""

    def keep(self, runs: "Sequence[Run]") -> None:
        with self._changed:
            for run in runs:
                self._waiting.pop(run.key, None)
                self._waiting[run.key] = run
            while len(self._waiting) > MOST_RUNS_WAITING:
                del self._waiting[next(iter(self._waiting))]
            self._asked += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="keep runs", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, runs: "Sequence[Run]", patience: float) -> None:
        """Keep the final state of runs; wait up to `patience` seconds until it is written."""
        if not runs and self._thread is None:
            return
        self.keep(runs)
        with self._changed:
            asked = self._asked
            self._changed.wait_for(lambda: self._done >= asked, patience)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked > self._done)
                asked, taken = self._asked, self._waiting
                self._waiting = {}
            problem = ""
            for key, run in taken.items():
                if not problem:  # after one failure the others would fail as well, each as slowly
                    try:
                        versions = {"vramtui": __version__, **run.versions}
                        self._open_history().keep(msgspec.structs.replace(run, versions=versions))
                    except UserError as error:
                        problem = str(error)
                if problem:
                    with self._changed:
                        self._waiting.setdefault(key, run)
            self.problem = problem
            with self._changed:
                self._done = asked
                self._changed.notify_all()
