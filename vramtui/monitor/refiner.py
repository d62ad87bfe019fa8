"""Estimates whose cached memory is simulated, made beside the screen and only for what stays chosen."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.schema.workload import Workload

Job = tuple[Workload, Device]
# A job that is asked about for so many seconds is simulated; values that a slider passes by are not.
SETTLED = 0.3
KEPT = 128


def _nobody() -> None:
    """Nobody waits for it."""


class Refiner:
    """Simulates one job at a time on a thread of its own, the one that was asked about last.

    Args:
        load: returns the estimator; called on the thread, since loading takes time.
        settled: how many seconds a job is asked about before it is simulated.
    """

    def __init__(self, load: Callable[[], Estimator], settled: float = SETTLED) -> None:
        self._load = load
        self._settled = settled
        self._lock = threading.Condition()
        self._wanted: Job | None = None
        self._found: OrderedDict[Job, Estimate | None] = OrderedDict()
        self._thread: threading.Thread | None = None
        self.tell: Callable[[], object] = _nobody

    def found(self, job: Job) -> Estimate | None:
        """The simulated estimate, if it is there; asking begins it where nobody has."""
        with self._lock:
            if job in self._found:
                self._found.move_to_end(job)
                return self._found[job]
            self._wanted = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="refine", daemon=True)
                self._thread.start()
            return None

    def wait(self, timeout: float) -> bool:
        """Whether all that was asked about is there within so many seconds; for tests and programs."""
        with self._lock:
            return self._lock.wait_for(lambda: self._wanted is None, timeout)

    def _run(self) -> None:
        estimator = self._load()
        while True:
            with self._lock:
                job = self._wanted
            if job is None:
                with self._lock:
                    if self._wanted is None:
                        self._thread = None
                        return
                continue
            time.sleep(self._settled)
            if job != self._wanted:
                continue
            found = _simulated(estimator, job)
            with self._lock:
                self._found[job] = found
                while len(self._found) > KEPT:
                    self._found.popitem(last=False)
                if self._wanted == job:
                    self._wanted = None
                self._lock.notify_all()
            self.tell()


def _simulated(estimator: Estimator, job: Job) -> Estimate | None:
    try:
        return estimator.estimate(*job)
    except UserError:
        return None
