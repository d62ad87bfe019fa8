"""Estimates whose cached memory is simulated, and largest batches by them, made beside the screen and only for what
stays chosen.
"""

import threading
import time
from collections.abc import Callable
from functools import cached_property, partial

from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.estimate.largest import CEILING, search_largest
from vramtui.core.schema.workload import Workload

Job = tuple[Workload, Device]
# A job that is asked about for so many seconds is simulated; values that a slider passes by are not.
DEBOUNCE_SECONDS = 0.3
KEPT = 128
# Seconds of work that a search may take of one turn. An estimate under way is finished, so a turn can take that longer.
BUDGET = 0.01


def _no_listener() -> None:
    """Nobody waits for it."""


class MaxBatchSearch:
    """One search for the largest batch, which goes on whenever it is given time.

    Args:
        needs: bytes of the process with a batch of that size, None where there is no estimate; costs an estimate.
        room: bytes of the card.
        start: the batch that is asked first.
        most: no batch beyond it is asked.

    Attributes:
        largest: the largest batch that fits; 0 when none does, None while the search goes on.
    """

    __slots__ = ("_asked", "_needs", "_search", "largest")

    def __init__(self, needs: Callable[[int], int | None], room: int, start: int = 1, *, most: int = CEILING) -> None:
        self.largest: int | None = None
        self._needs = needs
        self._search = search_largest(room, start, most=most)
        self._asked = next(self._search)

    def go_on(self, budget: float = BUDGET) -> None:
        """Search for `budget` seconds of work, for one estimate at least: a busy machine makes no turn shorter."""
        over = time.thread_time() + budget
        while self.largest is None:
            try:
                self._asked = self._search.send(self._needs(self._asked))
            except StopIteration as ended:
                self.largest = int(ended.value)
            if time.thread_time() >= over:
                return


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
        self._question: Job | None = None
        self._search: MaxBatchSearch | None = None
        self._batches: Latest[Job, int] = Latest(KEPT)
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

    def largest_batch(self, question: Job, start: int) -> int | None:
        """The largest batch that fits by simulated estimates, 0 where none does; None until it is found, which asking
        begins. The question that was asked last is the one that is worked at.

        Args:
            question: the job and its card.
            start: where the edge is thought to be.
        """
        with self._lock:
            if question in self._batches:
                return self._batches[question]
            if self._question != question:
                self._question = question
                self._search = MaxBatchSearch(partial(self._size, question), question[1].total_memory, start)
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

    @cached_property
    def _estimator(self) -> Estimator:
        return self._load()

    def _run(self) -> None:
        while True:
            with self._lock:
                job, question, search = self._wanted, self._question, self._search
                if job is None and search is None:
                    self._thread = None
                    return
            if job is not None:
                self._refine(job)
            elif question is not None and search is not None:
                self._find_batch(question, search)

    def _refine(self, job: Job) -> None:
        time.sleep(self._settled)
        if job != self._wanted:
            return
        estimate = self._simulated(job)
        with self._lock:
            self._estimates[job] = estimate
            if self._wanted == job:
                self._wanted = None
            self._lock.notify_all()
        self.tell()

    def _find_batch(self, question: Job, search: MaxBatchSearch) -> None:
        """Go on until it is found, or something else was asked that goes first."""
        while search.largest is None:
            if self._wanted is not None or self._search is not search:
                return
            search.go_on(0)
        with self._lock:
            self._batches[question] = search.largest
            if self._search is search:
                self._question = self._search = None
            self._lock.notify_all()
        self.tell()

    def _size(self, asked: Job, batch: int) -> int | None:
        """Return the process's bytes with that batch; None if it is refused."""
        workload, device = asked
        estimate = self._simulated((workload.with_run(batch_size=batch), device))
        return None if estimate is None else estimate.process

    def _simulated(self, job: Job) -> Estimate | None:
        try:
            return self._estimator.estimate(*job)
        except UserError:
            return None
