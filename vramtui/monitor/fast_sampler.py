"""The thread that looks at a few processes ten times a second, so that a short spike is not missed; and at which. While
nothing of them has moved for a while it looks twice a second: memory of a job that repeats its steps stands still, and
ten looks a second were a third of all that the dashboard took with one GPU.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from heapq import nlargest
from operator import itemgetter
from typing import Literal

from vramtui.core.observation.readings import ProcessKey
from vramtui.core.observation.source import FastSource, Source
from vramtui.core.observation.track import FastSample

INTERVAL, LONGEST = 0.1, 1.0  # seconds between looks
STALLED = 1.0  # seconds for a look after which the driver is left alone
REST = 5.0  # seconds for which it is then
STILL, SELDOM = 5.0, 5  # seconds without a change after which a look comes so many times less often
MOST_KEPT = 8192
MOST = 64  # processes that are worth it at once: what a close look costs grows with them

# Which processes are looked at: those that run a preset, these and those that report themselves, none, or these pids.
FastTargets = Literal["matched", "auto", "none"] | frozenset[int]


def heaviest(processes: Iterable[tuple[ProcessKey, int]]) -> list[ProcessKey]:
    """The keys of the MOST processes that hold the most bytes, the largest first."""
    return [key for key, _ in nlargest(MOST, processes, key=itemgetter(1))]


class FastSampler(threading.Thread):
    """Looks at the devices of the processes it is given, and keeps what those held until somebody takes it.

    A daemon that nobody waits for: a look that hangs in the driver holds nothing up but the next look.

    Args:
        source: what is asked.
        clock: seconds since the epoch, as in samples.
        interval: seconds between looks.
        targets: which processes it is there for; whoever knows them aims it.
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
        self._source = source
        self._clock = clock
        self._interval = interval
        self._aims: dict[str, list[ProcessKey]] = {}
        self._looks: deque[FastSample] = deque(maxlen=MOST_KEPT)
        self._last: dict[str, float] = {}
        self._seen: dict[ProcessKey, int] = {}
        self._moved_at = float("-inf")
        self._awake = threading.Event()
        # Free once it is to end: waiting for a lock takes half the time that waiting for an event does.
        self._ending = threading.Lock()
        self._ending.acquire()

    def aim(self, keys: Collection[ProcessKey]) -> None:
        """Look at these processes from now on, and at no others."""
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
        """The looks up to that time (seconds since the epoch), the first one first; each is given once."""
        looks = []
        while self._looks and self._looks[0].at <= until:
            looks.append(self._looks.popleft())
        return looks

    def step(self) -> bool:
        """One look at each device; False where the driver took too long."""
        aims = self._aims
        for uuid, keys in aims.items():
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
        """Seconds between looks now."""
        is_still = self._clock() - self._moved_at > STILL
        return max(self._interval, min(SELDOM * self._interval, LONGEST)) if is_still else self._interval

    def run(self) -> None:
        wait = 0.0
        while not self._ending.acquire(timeout=wait):
            self._awake.wait()
            begun = time.monotonic()
            rest = 0.0 if self.step() else REST
            spent = time.monotonic() - begun
            missed = int(spent // self.pace)
            wait = rest or (missed + 1) * self.pace - spent

    def stop(self) -> None:
        """Ask the thread to end after its present look; returns at once."""
        if self._ending.locked():
            self._ending.release()
        self._awake.set()


def fast_interval(interval: float) -> float:
    """Seconds between looks beside samples every `interval` seconds: who asks for fewer samples wants it cheaper."""
    return min(max(INTERVAL, interval / 10), LONGEST)


def fast_sampler_for(source: Source, targets: FastTargets, interval: float = INTERVAL) -> FastSampler | None:
    """One for `source` that looks every `interval` seconds, not started; None where it cannot sample single processes,
    or need not.
    """
    if targets == "none" or not isinstance(source, FastSource):
        return None
    return FastSampler(source, interval=interval, targets=targets)
