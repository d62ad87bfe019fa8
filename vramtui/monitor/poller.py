"""Threads that read the source, and look at a few of its processes ten times a second; nothing waits for a read."""

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Literal

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.history import FastSample
from vramtui.core.observation.readings import FastSource, ProcessKey, Sample, Source

# A read takes up to a few hundred milliseconds: one that takes seconds hangs in the driver. A longer interval allows
# more, because the screen changes no sooner.
DEADLINE = 3.0
MOST_WAITING = 120  # results that may wait; the oldest of more are dropped


class ReadOverdue(msgspec.Struct, frozen=True):
    """A read has not been answered within its deadline, but may be yet; `asked_at` is when it began by the poller's
    clock.
    """

    asked_at: float


ReadResult = Sample | SourceFailed | ReadOverdue


def read_deadline(interval: float) -> float:
    """Return the seconds after which a read without an answer is overdue, everywhere in the program."""
    return max(DEADLINE, 2 * interval)


class Poller(threading.Thread):
    """Reads `source` every `interval` seconds and delivers the results. A slow read skips ticks.

    It is a daemon: a read that hangs in the driver holds up nothing, not even the end of the program. `deliver` must be
    safe to call from any thread; without it results wait for `deliver_to`.
    """

    def __init__(
        self,
        source: Source,
        interval: float,
        deliver: Callable[[ReadResult], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name=f"poll {source.name}", daemon=True)
        self._source, self._interval, self._clock = source, interval, clock
        self._waiting: queue.SimpleQueue[ReadResult] = queue.SimpleQueue()
        self._handing = threading.Lock()
        self._deliver: Callable[[ReadResult], object] = deliver or self._waiting.put
        self._stop_asked = threading.Event()
        self._asked_at: float | None = None
        self._answered = threading.Event()
        self._first: ReadResult | None = None
        self._delivers_last = False

    def deliver_to(self, deliver: Callable[[ReadResult], object]) -> None:
        """Deliver to this from now on, first the results that have waited."""
        with self._handing:
            while not self._waiting.empty():
                deliver(self._waiting.get())
            self._deliver = deliver

    def first_answer(self, seconds: float) -> ReadResult | None:
        """Return the result of the first read, which is delivered as well; None if it takes more than `seconds`."""
        return self._first if self._answered.wait(seconds) else None

    def run(self) -> None:
        while True:
            begun = self._asked_at = self._clock()
            result: ReadResult
            try:
                result = self._source.read()
            except SourceFailed as failure:
                result = failure
            except Exception as error:  # noqa: BLE001 - a broken source must not end the program
                result = SourceFailed(f"the {self._source.name} source broke: {type(error).__name__}: {error}")
            self._asked_at = None
            if not self._answered.is_set():
                self._first = result
                self._answered.set()
            elif self._deliver != self._waiting.put:  # the client has it: of thousands of processes it takes megabytes
                self._first = None
            if self._stop_asked.is_set() and not self._delivers_last:
                return
            with self._handing:
                self._deliver(result)
            spent = self._clock() - begun
            if self._stop_asked.wait((int(spent // self._interval) + 1) * self._interval - spent):
                return

    def check(self) -> None:
        """Deliver ReadOverdue if the read in progress is past its deadline. The client calls this."""
        asked_at = self._asked_at
        if asked_at is not None and self._clock() - asked_at > read_deadline(self._interval):
            self._deliver(ReadOverdue(asked_at))

    def stop(self, *, deliver_last: bool = False) -> None:
        """Ask the thread to end after its present read; deliver its result with `deliver_last`."""
        self._delivers_last = deliver_last
        self._stop_asked.set()


class ReadQueue:
    """The results of a poller for a client that waits for them; reads begin with the first call of `next`."""

    __slots__ = ("_poller", "_results")

    def __init__(self, source: Source, interval: float) -> None:
        self._results: queue.SimpleQueue[ReadResult | None] = queue.SimpleQueue()
        self._poller = Poller(source, interval, self._put)

    def begin(self) -> None:
        if self._poller.ident is None:
            self._poller.start()

    def next(self, timeout: float = DEADLINE) -> ReadResult | None:
        """Return the next result; None if there is none for `timeout` seconds, or `wake` was called."""
        self.begin()
        try:
            return self._results.get(timeout=max(0.0, timeout))
        except queue.Empty:
            self._poller.check()
            return None

    def sample(self, overdue: Callable[[], object]) -> Sample:
        """Wait for the latest sample; call `overdue` once if that takes longer than the deadline.

        Raises:
            SourceFailed: the source failed.
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
        while self._results.qsize() >= MOST_WAITING:  # the client may wait for a disk or a pipe
            with contextlib.suppress(queue.Empty):
                self._results.get_nowait()
        self._results.put(result)

    def wake(self) -> None:
        """End the wait of `next`; safe to call from anywhere, also from a signal handler."""
        self._results.put(None)

    def close(self) -> None:
        self._poller.stop()


INTERVAL, LONGEST = 0.1, 1.0  # seconds between looks
STALLED = 1.0  # a look that takes so many seconds leaves the driver alone for REST seconds
REST = 5.0
STILL, SELDOM = 5.0, 5  # seconds without a change after which a look comes so many times less often
MOST_KEPT = 8192
MOST_LOOKED_AT = 64  # processes sampled at once: the cost of a look grows with them

# The processes to sample: those that run a preset, these and those that report themselves, none, or these pids.
FastTargets = Literal["matched", "auto", "none"] | frozenset[int]


class FastSampler(threading.Thread):
    """Samples the processes it is aimed at, and keeps the samples until they are taken.

    It is a daemon: a look that hangs in the driver holds up only the next look. `clock` gives seconds since the epoch,
    as in samples.
    """

    def __init__(
        self,
        source: FastSource,
        clock: Callable[[], float] = time.time,
        interval: float = INTERVAL,
        targets: FastTargets = "matched",
    ) -> None:
        super().__init__(name=f"sample {source.name}", daemon=True)
        self.targets = targets
        self._source, self._clock, self._interval = source, clock, interval
        self._aims: dict[str, list[ProcessKey]] = {}
        self._looks: deque[FastSample] = deque(maxlen=MOST_KEPT)
        self._last: dict[str, float] = {}
        self._seen: dict[ProcessKey, int] = {}
        self._moved_at = float("-inf")
        self._awake = threading.Event()
        self._ending = threading.Lock()  # free once the thread is to end: a lock takes half the time of an event
        self._ending.acquire()

    def aim(self, keys: Collection[ProcessKey]) -> None:
        aims: dict[str, list[ProcessKey]] = {}
        for key in keys:
            aims.setdefault(key.gpu_uuid, []).append(key)
        self._aims = aims
        if set(keys) - self._seen.keys():
            self._moved_at = self._clock()
        self._seen = {key: self._seen.get(key, 0) for key in keys}
        if aims:
            self._awake.set()
        else:
            self._awake.clear()

    def pop_until(self, until: float) -> list[FastSample]:
        """Return the looks up to that time (seconds since the epoch), the oldest first, each once."""
        looks = []
        while self._looks and self._looks[0].at <= until:
            looks.append(self._looks.popleft())
        return looks

    def step(self) -> bool:
        for uuid, keys in self._aims.items():
            begun = self._clock()
            memory = self._source.look(uuid)
            at = self._clock()
            since = at - self._last.get(uuid, at - self._interval)
            self._last[uuid] = at
            for key in keys:
                used = memory.get(key.pid)
                if used is not None:
                    if self._seen.get(key) != used:
                        self._seen[key], self._moved_at = used, at
                    self._looks.append(FastSample(key, at, used, since))
            if at - begun > STALLED:
                return False
        return True

    @property
    def pace(self) -> float:
        is_still = self._clock() - self._moved_at > STILL
        return max(self._interval, min(SELDOM * self._interval, LONGEST)) if is_still else self._interval

    def run(self) -> None:
        wait = 0.0
        while not self._ending.acquire(timeout=wait):
            self._awake.wait()
            begun = time.monotonic()
            rest = 0.0 if self.step() else REST
            spent = time.monotonic() - begun
            wait = rest or (int(spent // self.pace) + 1) * self.pace - spent

    def stop(self) -> None:
        """Ask the thread to end after its present look; return at once."""
        if self._ending.locked():
            self._ending.release()
        self._awake.set()


def fast_sampler_for(source: Source, targets: FastTargets, interval: float = 1.0) -> FastSampler | None:
    """Return a sampler for `source`, not started; None if the source or the targets need none. It looks ten times in
    the `interval` of samples, in seconds: fewer samples mean fewer looks.
    """
    if targets == "none" or not isinstance(source, FastSource):
        return None
    return FastSampler(source, interval=min(max(INTERVAL, interval / 10), LONGEST), targets=targets)
