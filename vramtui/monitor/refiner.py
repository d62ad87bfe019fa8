"""Estimates whose cached memory is simulated, and largest batches by them, made beside the screen and only for what
stays chosen.
"""

import threading
import time
from collections.abc import Callable

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Correct, Estimate, Estimator
from vramtui.core.estimate.largest import largest, search_largest
from vramtui.core.schema.workload import Workload

Job = tuple[Workload, Device]
# A job that is asked about for so many seconds is simulated; values that a slider passes by are not.
DEBOUNCE_SECONDS = 0.3
KEPT = 128


def _no_listener() -> None:
    """Nobody waits for it."""


class BatchQuestion(msgspec.Struct, frozen=True):
    """What is the largest batch of a job that fits its empty card, when every estimate passes through `correct`?"""

    workload: Workload
    device: Device
    correct: Correct | None


class _CancelledError(Exception):
    """Something else was asked that goes first."""


class _BatchSearch:
    """A question about a batch, and what is known of its answer: bytes of batches, None of refused ones."""

    def __init__(self, question: BatchQuestion, start: int) -> None:
        self.question, self.start = question, start
        self.known: dict[int, int | None] = {}

    def find(self, estimator: Estimator, is_wanted: Callable[[], bool]) -> int:
        """The largest batch, 0 where none fits.

        Raises:
            _CancelledError: it is no longer wanted now; what is known by then is kept.
        """
        asked = self.question
        correct = asked.correct

        def needs(batch: int) -> int | None:
            if batch not in self.known:
                if not is_wanted():
                    raise _CancelledError
                workload = asked.workload.with_inputs(batch_size=batch)
                estimate = _simulated(estimator, (workload, asked.device))
                if estimate is not None and correct is not None:
                    estimate = correct(estimate, workload, asked.device)
                self.known[batch] = None if estimate is None else estimate.process
            return self.known[batch]

        return largest(needs, search_largest(asked.device.total_memory, self.start))


class Refiner:
    """Simulates one job at a time on a thread of its own, the one that was asked about last.

    Args:
        load: returns the estimator; called on the thread, since loading takes time.
        settled: how many seconds a job is asked about before it is simulated.
    """

    def __init__(self, load: Callable[[], Estimator], settled: float = DEBOUNCE_SECONDS) -> None:
        self._load = load
        self._settled = settled
        self._lock = threading.Condition()
        self._wanted: Job | None = None
        self._estimates: Latest[Job, Estimate | None] = Latest(KEPT)
        self._search: _BatchSearch | None = None
        self._batches: Latest[BatchQuestion, int] = Latest(KEPT)
        self._thread: threading.Thread | None = None
        self.tell: Callable[[], object] = _no_listener

    def simulated(self, job: Job) -> Estimate | None:
        """The simulated estimate, if it is there; asking begins it where nobody has."""
        with self._lock:
            if job in self._estimates:
                self._estimates.move_to_end(job)
                return self._estimates[job]
            self._wanted = job
            self._work()
            return None

    def is_wanted(self, job: Job) -> bool:
        """Whether the job is waiting for its simulated estimate."""
        return self._wanted == job

    def largest_batch(self, question: BatchQuestion, start: int) -> int | None:
        """The largest batch that fits by simulated estimates, 0 where none does; None until it is found, which asking
        begins. The question that was asked last is the one that is worked at.

        Args:
            question: the job, its card and what corrects estimates.
            start: where the edge is thought to be.
        """
        with self._lock:
            if question in self._batches:
                return self._batches[question]
            if self._search is None or self._search.question != question:
                self._search = _BatchSearch(question, max(start, 1))
                self._work()
            return None

    def wait(self, timeout: float) -> bool:
        """Whether all that was asked about is there within so many seconds; for tests and programs."""
        with self._lock:
            return self._lock.wait_for(lambda: self._wanted is None and self._search is None, timeout)

    def _work(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="refine", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        estimator = self._load()
        while True:
            with self._lock:
                job, search = self._wanted, self._search
                if job is None and search is None:
                    self._thread = None
                    return
            if job is not None:
                self._refine(estimator, job)
            elif search is not None:
                self._find_batch(estimator, search)

    def _refine(self, estimator: Estimator, job: Job) -> None:
        time.sleep(self._settled)
        if job != self._wanted:
            return
        estimate = _simulated(estimator, job)
        with self._lock:
            self._estimates[job] = estimate
            if self._wanted == job:
                self._wanted = None
            self._lock.notify_all()
        self.tell()

    def _find_batch(self, estimator: Estimator, search: _BatchSearch) -> None:
        try:
            largest = search.find(estimator, lambda: self._wanted is None and self._search is search)
        except _CancelledError:
            return
        with self._lock:
            self._batches[search.question] = largest
            if self._search is search:
                self._search = None
            self._lock.notify_all()
        self.tell()


def _simulated(estimator: Estimator, job: Job) -> Estimate | None:
    try:
        return estimator.estimate(*job)
    except UserError:
        return None
