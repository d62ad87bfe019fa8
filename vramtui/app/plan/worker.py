"""One thread beside the screen that fills maps: a little at a time, and only as long as somebody looks."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping

from vramtui.core.devices import Device
from vramtui.core.estimate import Estimate, Estimator
from vramtui.core.workload import Workload

# After every estimate the screen's own thread gets this many seconds in which nothing else wants the interpreter.
PAUSE = 0.0002
TELL_EVERY = 0.1

Steps = Callable[[Estimator], Iterator[None]]
Correct = Callable[[Estimate, Workload, Device], Estimate]


class _Stopped(Exception):
    """Nobody wants to know any more."""


class Worker:
    """Works at the jobs that are wanted, a step of each in turn; without any it has no thread.

    Args:
        tell: called on the thread when there is something new to see, at most ten times a second and at each end.
        failed: called on the thread with what a job died of, which is a fault of ours.
    """

    def __init__(self, tell: Callable[[], object], failed: Callable[[Exception], object]) -> None:
        self._tell, self._failed = tell, failed
        self._lock = threading.Lock()
        self._jobs: dict[object, Iterator[None]] = {}
        self._thread: threading.Thread | None = None
        self._told_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._jobs)

    def want(self, jobs: Mapping[object, Steps], estimator: Estimator, correct: Correct | None) -> None:
        """From now on work at these, by what they are about, and at nothing else. Those already begun go on."""
        with self._lock:
            for name in [name for name in self._jobs if name not in jobs]:
                del self._jobs[name]
            for name, steps in jobs.items():
                if name not in self._jobs:
                    self._jobs[name] = steps(_Polite(estimator, correct, self._is_wanted(name)))
            if self._jobs and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="plan", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Leave everything."""
        with self._lock:
            self._jobs.clear()

    def _is_wanted(self, name: object) -> Callable[[], bool]:
        return lambda: name in self._jobs

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                name = next(iter(self._jobs))
                # Each in turn: the one that is next now is the last one after its step.
                steps = self._jobs[name] = self._jobs.pop(name)
            ended = self._step(steps)
            if ended:
                with self._lock:
                    if self._jobs.get(name) is steps:
                        del self._jobs[name]
            if ended or time.monotonic() - self._told_at >= TELL_EVERY:
                self._told_at = time.monotonic()
                self._tell()

    def _step(self, steps: Iterator[None]) -> bool:
        """One step; True at the end."""
        try:
            next(steps)
        except (StopIteration, _Stopped):
            return True
        except Exception as error:  # noqa: BLE001 - said on the screen: a map must not end the dashboard
            self._failed(error)
            return True
        return False


class _Polite:
    """An estimator that stops when it is no longer wanted, and lets others have the interpreter after each answer."""

    def __init__(self, estimator: Estimator, correct: Correct | None, is_wanted: Callable[[], bool]) -> None:
        self.name = estimator.name
        self._estimator, self._correct, self._is_wanted = estimator, correct, is_wanted

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """As the estimator has it, corrected where that is asked for."""
        if not self._is_wanted():
            raise _Stopped
        try:
            estimate = self._estimator.estimate(workload, device)
        finally:
            time.sleep(PAUSE)
        return estimate if self._correct is None else self._correct(estimate, workload, device)
