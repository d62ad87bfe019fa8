"""The thread that samples a few processes ten times a second, so that a short spike is not missed.

While none of them changes it samples twice a second: ten looks a second took a third of the dashboard's processor time.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from heapq import nlargest
from operator import itemgetter
from typing import Literal

from vramtui.core.observation.history import FastSample
from vramtui.core.observation.readings import ProcessKey
from vramtui.core.observation.source import FastSource, Source

INTERVAL, LONGEST = 0.1, 1.0  # seconds between looks
STALLED = 1.0  # a look that takes so many seconds leaves the driver alone for REST seconds
REST = 5.0
STILL, SELDOM = 5.0, 5  # seconds without a change after which a look comes so many times less often
MOST_KEPT = 8192
MOST = 64  # processes sampled at once: the cost of a look grows with them

# The processes to sample: those that run a preset, these and those that report themselves, none, or these pids.
FastTargets = Literal["matched", "auto", "none"] | frozenset[int]


def heaviest(processes: Iterable[tuple[ProcessKey, int]]) -> list[ProcessKey]:
    """Return the keys of the MOST processes that hold the most bytes, the largest first."""
    return [key for key, _ in nlargest(MOST, processes, key=itemgetter(1))]


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


def fast_interval(interval: float) -> float:
    """Return the seconds between looks for samples every `interval` seconds: fewer samples mean fewer looks."""
    return min(max(INTERVAL, interval / 10), LONGEST)


def fast_sampler_for(source: Source, targets: FastTargets, interval: float = INTERVAL) -> FastSampler | None:
    """Return a sampler for `source`, not started; None if the source or the targets need none."""
    if targets == "none" or not isinstance(source, FastSource):
        return None
    return FastSampler(source, interval=interval, targets=targets)
