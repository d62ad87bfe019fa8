"""One thread beside the screen that fills maps: a little at a time, and only as long as somebody looks."""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.schema.workload import Workload

# After every estimate the screen's own thread gets this many seconds in which nothing else wants the interpreter.
PAUSE = 0.0002
# Each time the whole screen is drawn, 20 to 40 ms in which nothing is calculated.
TELL_EVERY = 0.25
# Whoever waits for the interpreter gets it after so many seconds while maps are filled. The screen's own thread lets go
# of it at every turn of its loop, and a key takes many turns: Python's own 5 ms would add up to a stall.
TURN = 0.0005
# An estimate makes thousands of objects and lets all of them go again without a cycle among them. Counted as usual they
# set off one search for garbage after another through everything that the screen holds, a tenth of a second each in
# which nothing else runs; so many at once are only made by what does leave garbage.
YOUNG = 50_000

Steps = Callable[[Estimator], Iterator[None]]


class _StoppedError(Exception):
    """Nobody wants to know any more."""


class GridWorker:
    """Works at the jobs that are wanted, at each as long as at the others; without any it has no thread.

    Args:
        tell: called on the thread when there is something new to see, at most four times a second and at each end.
        failed: called on the thread with what a job died of, which is a fault of ours.
    """

    __slots__ = ("_failed", "_jobs", "_lock", "_tell", "_thread", "_told_at")

    def __init__(self, tell: Callable[[], object], failed: Callable[[Exception], object]) -> None:
        self._tell, self._failed = tell, failed
        self._lock = threading.Lock()
        self._jobs: dict[object, _Job] = {}
        self._thread: threading.Thread | None = None
        self._told_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._jobs)

    def want(self, jobs: Mapping[object, Steps], estimator: Estimator) -> None:
        """Work at these alone from now on, by what they are about. Those already begun go on."""
        with self._lock:
            for name in [name for name in self._jobs if name not in jobs]:
                del self._jobs[name]
            for name, steps in jobs.items():
                if name not in self._jobs:
                    spent = min((job.spent for job in self._jobs.values()), default=0.0)
                    self._jobs[name] = _Job(steps(_Polite(estimator, self._is_wanted(name))), spent)
            if self._jobs and self._thread is None:
                _PACE.shorten()
                self._thread = threading.Thread(target=self._run, name="plan", daemon=True)
                self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until everything asked for is done, or for `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def stop(self) -> None:
        with self._lock:
            self._jobs.clear()

    def _is_wanted(self, name: object) -> Callable[[], bool]:
        return lambda: name in self._jobs

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    _PACE.restore()
                    self._thread = None
                    return
                name, job = min(self._jobs.items(), key=lambda item: item[1].spent)
            start = time.thread_time()
            ended = self._step(job.steps)
            job.spent += time.thread_time() - start
            if ended:
                with self._lock:
                    if self._jobs.get(name) is job:
                        del self._jobs[name]
            if ended or time.monotonic() - self._told_at >= TELL_EVERY:
                self._told_at = time.monotonic()
                self._tell()

    def _step(self, steps: Iterator[None]) -> bool:
        """One step; True at the end."""
        try:
            next(steps)
        except (StopIteration, _StoppedError):
            return True
        except Exception as error:  # noqa: BLE001 - said on the screen: a map must not end the dashboard
            self._failed(error)
            return True
        return False


class _Job:
    """What is left of a job, and seconds of work spent on it, or on others before it was there."""

    __slots__ = ("spent", "steps")

    def __init__(self, steps: Iterator[None], spent: float) -> None:
        self.steps, self.spent = steps, spent


class _Pace:
    """How the interpreter shares itself out, and after how many new objects it looks for garbage: both are the whole
    process's, so the first worker that begins changes them and the last that ends puts them back.
    """

    __slots__ = ("_lock", "_usual", "_workers")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = 0
        self._usual = (sys.getswitchinterval(), gc.get_threshold())

    def shorten(self) -> None:
        """A worker begins."""
        with self._lock:
            self._workers += 1
            if self._workers == 1:
                self._usual = (sys.getswitchinterval(), gc.get_threshold())
                sys.setswitchinterval(TURN)
                gc.set_threshold(YOUNG, *self._usual[1][1:])

    def restore(self) -> None:
        """A worker ends."""
        with self._lock:
            self._workers -= 1
            if not self._workers:
                sys.setswitchinterval(self._usual[0])
                gc.set_threshold(*self._usual[1])


_PACE = _Pace()


class _Polite:
    """An estimator that stops when it is no longer wanted, and lets others have the interpreter after each answer."""

    __slots__ = ("_estimator", "_is_wanted", "name")

    def __init__(self, estimator: Estimator, is_wanted: Callable[[], bool]) -> None:
        self.name = estimator.name
        self._estimator, self._is_wanted = estimator, is_wanted

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        if not self._is_wanted():
            raise _StoppedError
        try:
            return self._estimator.estimate(workload, device)
        finally:
            time.sleep(PAUSE)
