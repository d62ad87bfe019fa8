"""The Plan screen's model, and the thread that fills its maps step by step; both outlive the screen."""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from vramtui.app.context import AppContext, Feature
from vramtui.app.terminal.textual_private import call_after, collect_garbage

if TYPE_CHECKING:
    from vramtui.app.plan.dialogs import CardRunner
    from vramtui.app.plan.model import PlanModel, PlanView, Steps
    from vramtui.app.plan.screen import PlanScreen
    from vramtui.core.estimate.devices import Device
    from vramtui.core.estimate.estimate import Estimate, Estimator
    from vramtui.core.schema.workload import Workload

PAUSE = 0.0002  # seconds after every estimate in which the screen's thread has the interpreter to itself
TELL_EVERY = 0.25  # drawing the whole screen takes 20 to 40 ms in which nothing is calculated
# The interpreter's switch interval while maps are filled. The screen's thread gives it up at every turn of its loop,
# and a key takes many turns: Python's own 5 ms would add up to a visible delay.
TURN = 0.0005
# An estimate makes thousands of objects without a cycle among them. With the usual threshold they start one garbage
# collection of all the screen's objects after another, and each stops everything for a tenth of a second.
YOUNG = 50_000

FORGET_AFTER = 20.0  # seconds after leaving Plan until its results are dropped; they are computed again on return


class PlanController(Feature):
    """Makes the screen and its view. The thread works only while the screen is shown."""

    __slots__ = ("_left", "_model", "_shared", "_worker", "runner")

    def __init__(self, shared: AppContext, runner: "CardRunner | None") -> None:
        self._shared, self.runner = shared, runner
        self._model: PlanModel | None = None
        self._worker: GridWorker | None = None
        self._left = 0

    @property
    def model(self) -> "PlanModel":
        if self._model is None:
            from vramtui.app.plan.model import PlanModel

            self._model = PlanModel()
        return self._model

    @property
    def worker(self) -> "GridWorker":
        if self._worker is None:
            later = self._shared.app.call_later
            self._worker = GridWorker(
                lambda: later(self._progressed), lambda error: later(self._failed, f"{type(error).__name__}: {error}")
            )
        return self._worker

    @property
    def busy(self) -> bool:
        return self._worker is not None and self._worker.is_busy

    def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()

    def put_away(self) -> None:
        """Another screen is shown: stop working, and drop the results after a while."""
        self.close()
        self._left += 1
        call_after(self._shared.app, FORGET_AFTER, partial(self._forget, self._left))

    def _forget(self, left: int) -> None:
        """Drop maps and estimates, unless the screen was shown again since."""
        current = self._shared.screens.current
        if left != self._left or (current is not None and current.PLACE == "plan"):
            return
        from vramtui.estimators.analytic import forget_estimates

        self.model.forget_answers()
        forget_estimates()
        collect_garbage()

    def screen(self) -> "PlanScreen":
        from vramtui.app.plan.screen import PlanScreen

        return PlanScreen(self._shared, self)

    def view(self) -> "PlanView":
        """The view of now; the worker goes on with what is unknown."""
        state = self._shared.state
        shown = self.model.view(state)
        self.worker.want(self.model.jobs, state.session.predictor.estimator)
        return shown

    def _progressed(self) -> None:
        current = self._shared.screens.current
        if current is not None and current.PLACE == "plan":
            self._shared.redraw.now()

    def _failed(self, problem: str) -> None:
        self._shared.app.notify(f"Heatmap incomplete: {problem}", severity="error")
        self._progressed()


class _StoppedError(Exception):
    """The job is not wanted any more."""


class GridWorker:
    """Gives each wanted job the same share of time; without jobs it has no thread. The thread calls `tell` if there is
    something new, up to four times a second and at each end, and `failed` with the error that ended a job, our bug.
    """

    __slots__ = ("_failed", "_jobs", "_lock", "_tell", "_thread", "_told_at")

    def __init__(self, tell: Callable[[], object], failed: Callable[[Exception], object]) -> None:
        self._tell, self._failed = tell, failed
        self._lock = threading.Lock()
        # The rest of each job, and the seconds spent on it; a new job starts with the least of the others.
        self._jobs: dict[object, tuple[Iterator[None], list[float]]] = {}
        self._thread: threading.Thread | None = None
        self._told_at = 0.0

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs)

    def want(self, jobs: "Mapping[object, Steps]", estimator: "Estimator") -> None:
        """Work only at these jobs from now on; those already begun go on."""
        with self._lock:
            for name in [name for name in self._jobs if name not in jobs]:
                del self._jobs[name]
            for name, steps in jobs.items():
                if name not in self._jobs:
                    least = min((spent[0] for _, spent in self._jobs.values()), default=0.0)
                    self._jobs[name] = steps(_Polite(estimator, self._jobs, name)), [least]
            if self._jobs and self._thread is None:
                _PACE.shorten()
                self._thread = threading.Thread(target=self._run, name="plan", daemon=True)
                self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until all jobs are done, or for `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def stop(self) -> None:
        with self._lock:
            self._jobs.clear()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    _PACE.restore()
                    self._thread = None
                    return
                name, job = min(self._jobs.items(), key=lambda item: item[1][1])
            steps, spent = job
            start, ended = time.thread_time(), False
            try:
                next(steps)
            except (StopIteration, _StoppedError):
                ended = True
            except Exception as error:  # noqa: BLE001 - shown on the screen: a map must not end the dashboard
                self._failed(error)
                ended = True
            spent[0] += time.thread_time() - start
            if ended:
                with self._lock:
                    if self._jobs.get(name) is job:
                        del self._jobs[name]
            if ended or time.monotonic() - self._told_at >= TELL_EVERY:
                self._told_at = time.monotonic()
                self._tell()


class _Pace:
    """The switch interval and the garbage collector's threshold of the whole process: the first worker to begin changes
    them, and the last to end restores them.
    """

    __slots__ = ("_lock", "_usual", "_workers")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = 0
        self._usual = (sys.getswitchinterval(), gc.get_threshold())

    def shorten(self) -> None:
        with self._lock:
            self._workers += 1
            if self._workers == 1:
                self._usual = (sys.getswitchinterval(), gc.get_threshold())
                sys.setswitchinterval(TURN)
                gc.set_threshold(YOUNG, *self._usual[1][1:])

    def restore(self) -> None:
        with self._lock:
            self._workers -= 1
            if not self._workers:
                sys.setswitchinterval(self._usual[0])
                gc.set_threshold(*self._usual[1])


_PACE = _Pace()


class _Polite:
    """An estimator that stops when its job is not wanted any more, and pauses after each answer."""

    __slots__ = ("_estimator", "_job", "_jobs", "name")

    def __init__(self, estimator: "Estimator", jobs: Mapping[object, object], job: object) -> None:
        self.name = estimator.name
        self._estimator, self._jobs, self._job = estimator, jobs, job

    def estimate(self, workload: "Workload", device: "Device") -> "Estimate":
        if self._job not in self._jobs:
            raise _StoppedError
        try:
            return self._estimator.estimate(workload, device)
        finally:
            time.sleep(PAUSE)
