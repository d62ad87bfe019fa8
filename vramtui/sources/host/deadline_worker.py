"""Runs jobs that may never come back one after the other, without letting one hold up the rest."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

LONGEST_TIMEOUT = 3.0  # seconds; the longest wait for a driver that is only slow
SHARE_WHILE_STUCK = 0.25  # of the timeout is left to the others after one did not come back


class Stuck:
    """The result of a job that has not come back; it began `since`, in seconds of the worker's clock."""

    def __init__(self, since: float) -> None:
        self.since = since


class _Round(Generic[T]):
    def __init__(self, jobs: deque[tuple[int, Callable[[], T]]]) -> None:
        self.jobs = jobs
        self.key: int | None = None
        self.began = 0.0
        self.abandoned = False
        self.finished = False


class DeadlineWorker(Generic[T]):
    """One worker thread for all jobs, which may take `timeout` seconds each; a thread that hangs in a job is left
    there, and another takes over the rest.

    A key whose job is still stuck is not started again until it has come back. The threads are daemons and nothing
    waits for them: a call that never returns does not keep the program from ending.
    """

    def __init__(self, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout = timeout
        self._clock = clock
        self._changed = threading.Condition()
        self._worker: SimpleQueue[_Round[T] | None] | None = None
        self._results: dict[int, T | Stuck] = {}
        self._error: Exception | None = None
        self._stuck: dict[int, Stuck] = {}
        self._slow: dict[int, float] = {}

    def run(self, jobs: Mapping[int, Callable[[], T]]) -> dict[int, T | Stuck]:
        """Do all jobs in their order. Called from one thread only; raises what a job raised, which none should."""
        with self._changed:
            self._results = dict(self._stuck)
            waiting = deque((key, job) for key, job in jobs.items() if key not in self._stuck)
            share = 1.0
            while waiting:
                self._round = _Round(waiting)
                if self._worker is None:
                    self._worker = SimpleQueue()
                    work, inbox = self._work, (self._worker,)
                    threading.Thread(target=work, args=inbox, name="vramtui-driver", daemon=True).start()
                self._worker.put(self._round)
                current, began = self._round, self._clock()
                while not current.finished:
                    timeout = self._timeout if current.key is None else self._slow.get(current.key, self._timeout)
                    left = max(began, current.began) + timeout * share - self._clock()
                    if left <= 0 and current.key is not None:  # its worker is left behind in the job
                        current.abandoned = True
                        self._results[current.key] = self._stuck[current.key] = Stuck(current.began)
                        self._worker, share = None, SHARE_WHILE_STUCK
                        break
                    self._changed.wait(max(left, 0.01))
            error, self._error = self._error, None
            if error is not None:
                raise error
            results, self._results = self._results, {}
            return {key: results[key] for key in jobs}

    def close(self) -> None:
        """End the worker after its present job. Never waits."""
        if self._worker is not None:
            self._worker.put(None)
            self._worker = None

    def _work(self, inbox: "SimpleQueue[_Round[T] | None]") -> None:
        while (work := inbox.get()) is not None:
            while True:
                with self._changed:
                    if not work.jobs:
                        work.key, work.finished = None, True
                        self._changed.notify_all()
                        break
                    key, job = work.jobs.popleft()
                    work.key, work.began = key, self._clock()
                result: T | None = None
                error: Exception | None = None
                try:
                    result = job()
                except Exception as raised:  # noqa: BLE001 - it is raised again in the thread that waits
                    error = raised
                with self._changed:
                    self._error = self._error or error
                    if work.abandoned:
                        took = self._clock() - work.began
                        self._slow[key] = min(LONGEST_TIMEOUT, max(self._timeout, 1.5 * took))
                        del self._stuck[key]
                        return
                    if result is not None:
                        self._results[key] = result
