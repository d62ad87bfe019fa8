"""Many hosts at once: each with a thread, a session and a summary; one of them is watched closely."""

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import (
    Gpu,
    ProcessKey,
    Sample,
    gpu_name,
    instance_names,
    process_key,
    usable_gpus,
)
from vramtui.core.observation.snapshot import device_of
from vramtui.core.observation.source import Source, silence_limit
from vramtui.core.runs.ranked_jobs import RankedJob, RankReading, rank_readings, ranked_jobs
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.monitor.job_memory import EarlierSamples
from vramtui.monitor.poller import Poller, ReadOverdue, ReadResult
from vramtui.monitor.probes import Jobs, no_jobs
from vramtui.monitor.session import MonitorSession, RecordedPeaks

SETTLED = 4  # intervals after which every host that answers has its session
MANY = 32  # hosts whose sessions the collector of garbage would take long to go through
GIVEN = 8  # samples that may be on their way to the screen
# What the GPUs of many hosts can be sorted by.
CONNECTING = "connecting"
FleetColumn = Literal["host", "gpu", "used", "predicted", "utilization", "state", "users"]
# And their jobs.
JobColumn = Literal["job", "user", "ranks", "used", "predicted", "imbalance", "worst"]


@dataclass(frozen=True)
class RemoteHost:
    """A host: its name as a person wrote it, where its samples come from, what else it tells, and its past."""

    name: str
    source: Source
    jobs: Jobs = no_jobs
    peaks: RecordedPeaks | None = None
    past: EarlierSamples | None = None


class GpuSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU in a line; bytes. `predicted` is the sum of the predicted peaks of its matched processes, and `is_quick`
    says that a nearer estimate will replace one of them.

    Attributes:
        label: its index, of a MIG instance with what tells it from others of its card.
        users: bytes that each user's processes hold, who holds most first.
    """

    index: int
    label: str = ""
    uuid: str
    name: str
    state: str
    reason: str
    used: int | None
    total: int | None
    predicted: int | None
    is_quick: bool = False
    utilization: int | None
    processes: int
    users: dict[str, int]


class HostSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A host as it is by now. `is_up` only while samples come; `age` in seconds since the latest, None before one.
    `users` are the bytes that each user's processes hold on all its GPUs.
    """

    name: str
    gpus: tuple[GpuSummary, ...] = ()
    is_up: bool = False
    age: float | None = None
    failure: str = ""
    alerts: int = 0
    ranks: tuple[RankReading, ...] = ()
    users: dict[str, int] = {}


MakeSession = Callable[[RemoteHost], MonitorSession]


class _Entry:
    """One host; `lock` is held by whoever uses its session while it is not the current one."""

    __slots__ = ("alerts", "arrived", "failure", "fresh", "given", "gpus", "host", "lock", "ranks", "session", "users")

    def __init__(self, host: RemoteHost, session: MonitorSession) -> None:
        self.host = host
        self.session = session
        self.lock = threading.Lock()
        self.gpus: tuple[GpuSummary, ...] = ()
        self.alerts = 0
        self.ranks: tuple[RankReading, ...] = ()
        self.users: dict[str, int] = {}
        self.arrived: float | None = None
        self.failure: SourceFailed | None = None
        self.fresh: Sample | None = None
        self.given: deque[Sample] = deque(maxlen=GIVEN)


class Fleet:
    """Reads every host on a thread of its own; one that hangs holds up no other.

    It is a source as well: that of the current host, which the dashboard watches. The sessions of the others take
    their samples here.

    Args:
        hosts: at least one; the first is current.
        interval: seconds between samples.
        clock: seconds that only go up; ages are by it, whatever the hosts' own clocks say.
    """

    __slots__ = (
        "_changed", "_clock", "_entries", "_interval", "_is_closed", "_pollers", "_presets", "_settles_at",
        "_working", "current", "hosts",
    )  # fmt: skip

    name = "fleet"

    def __init__(
        self, hosts: Sequence[RemoteHost], interval: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.hosts = tuple(hosts)
        self.current = self.hosts[0].name
        self._interval = interval
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._pollers: list[Poller] = []
        self._changed = threading.Condition()
        # One host at a time: they would only take the interpreter from each other.
        self._working = threading.Lock()
        self._presets: tuple[PresetFile, ...] = ()
        self._settles_at: float | None = None
        self._is_closed = False

    @property
    def host(self) -> str:
        """Who answers, or does not: the current host."""
        return self.current

    # --- as the dashboard's source -------------------------------------------------------------------------------

    def read(self) -> Sample:
        """The current host's newest sample that was not given yet, for which it waits.

        Raises:
            SourceFailed: it fails, or another host has become the current one and fails.
        """
        with self._changed:
            while True:
                entry = self._entries[self.current]
                if entry.fresh is not None:
                    sample, entry.fresh = entry.fresh, None
                    entry.given.append(sample)
                    return sample
                if entry.failure is not None:
                    raise SourceFailed(entry.failure.message, entry.failure.hint)
                if self._is_closed:
                    raise SourceFailed("no host is watched any more.")
                self._changed.wait()

    def close(self) -> None:
        for poller in self._pollers:
            poller.stop()
        for host in self.hosts:
            host.source.close()
        with self._changed:  # whoever waits for a sample waits no longer
            self._is_closed = True
            self._changed.notify_all()

    # --- life ----------------------------------------------------------------------------------------------------

    def begin(self, make_session: MakeSession) -> MonitorSession:
        """Begin to read all; the session of the current host."""
        # msgspec crashes where two threads make it learn at once what a type is made of.
        msgspec.json.Decoder(Workload)
        self._entries = {host.name: _Entry(host, make_session(host)) for host in self.hosts}
        if len(self.hosts) >= MANY:
            self._settles_at = self._clock() + SETTLED * self._interval
        for entry in self._entries.values():
            if entry.host.past is not None:
                entry.session.backfill(entry.host.past)
            poller = Poller(entry.host.source, self._interval, self._taker(entry))
            self._pollers.append(poller)
            poller.start()
        return self._entries[self.current].session

    def switch(self, name: str) -> MonitorSession:
        """Make another host the current one; its session, which knows what was seen so far."""
        entry = self._entries[name]
        with self._changed, entry.lock:
            # What has been seen of it is in its session; what comes from now on goes through the dashboard.
            entry.fresh = None
            self.current = name
            self._changed.notify_all()
        return entry.session

    def take_presets(self, presets: tuple[PresetFile, ...]) -> None:
        """Match the processes of all hosts but the current one by these; the dashboard does so for that."""
        for name, entry in self._entries.items():
            if name != self.current:
                with entry.lock:
                    entry.session.take_presets(presets)

    def is_current(self, sample: Sample) -> bool:
        """Whether a sample that `read` gave is of the host that is current now."""
        return any(sample is one for one in self._entries[self.current].given)

    def note_sample(self) -> None:
        """The dashboard has handed the latest sample to the current host's session."""
        self._summarise(self._entries[self.current])

    def finish_runs(self, patience: float) -> None:
        """Keep the last word on every job of the other hosts; the dashboard does so for the current one."""
        for name, entry in self._entries.items():
            if name != self.current and entry.lock.acquire(timeout=patience / len(self._entries)):
                try:
                    entry.session.finish_runs(0.0)
                finally:
                    entry.lock.release()

    # --- what is known -------------------------------------------------------------------------------------------

    def summaries(self) -> tuple[HostSummary, ...]:
        """Every host, in the order in which they were asked for."""
        now = self._clock()
        return tuple(self._summary(entry, now) for entry in self._entries.values())

    def _summary(self, entry: _Entry, now: float) -> HostSummary:
        age = None if entry.arrived is None else max(0.0, now - entry.arrived)
        is_up = age is not None and age <= silence_limit(self._interval) and entry.failure is None
        failure = "" if entry.failure is None else entry.failure.message
        if not failure and not is_up:
            failure = CONNECTING if age is None else "no answer"
        return HostSummary(
            name=entry.host.name,
            gpus=entry.gpus,
            is_up=is_up,
            age=age,
            failure=failure,
            alerts=entry.alerts,
            ranks=entry.ranks,
            users=entry.users,
        )

    # --- on the hosts' threads -----------------------------------------------------------------------------------

    def _taker(self, entry: _Entry) -> Callable[[ReadResult], None]:
        return lambda result: self._take(entry, result)

    def _take(self, entry: _Entry, result: ReadResult) -> None:
        if isinstance(result, ReadOverdue):
            return
        if isinstance(result, SourceFailed):
            with self._changed:
                entry.failure = result
                self._changed.notify_all()
            return
        with entry.lock:
            with self._changed:
                entry.failure, entry.arrived = None, self._clock()
                is_current = entry.host.name == self.current
                if is_current:
                    entry.fresh = result
                    self._changed.notify_all()
            if not is_current:
                with self._working:
                    entry.session.ingest(result)
                    self._summarise(entry)
                    self._settle()

    def _settle(self) -> None:
        """Once: spare the sessions of many hosts the collector of garbage, which stops every thread. They stay
        until the end.
        """
        if self._settles_at is not None and self._clock() > self._settles_at:
            self._settles_at = None
            gc.collect()
            gc.freeze()

    def _summarise(self, entry: _Entry) -> None:
        session = entry.session
        if session.sample is not None:
            estimates = session.estimates()
            predicted = {key: answer.process for key, answer in estimates.items() if answer is not None}
            quick = _quick_keys(session, session.sample)
            # A card that is cut into MIG instances is these: it would be counted twice, and be free for nobody.
            gpus = usable_gpus(session.sample.gpus)
            entry.gpus = tuple(_gpu_summary(session.sample, gpu, predicted, quick) for gpu in gpus)
            entry.users = _added_up(gpu.users for gpu in entry.gpus)
            entry.alerts = len(session.alerts)
            entry.ranks = rank_readings(session.sample, session.history.peak_of, predicted.get, quick)


def _quick_keys(session: MonitorSession, sample: Sample) -> frozenset[ProcessKey]:
    """The processes whose estimate a nearer one will replace."""
    devices = {gpu.uuid: device_of(gpu) for gpu in sample.gpus} if session.matched else {}
    return frozenset(
        key
        for key, preset_file in session.matched.items()
        if key.gpu_uuid in devices and session.is_quick(preset_file, devices[key.gpu_uuid])
    )


def _gpu_summary(
    sample: Sample, gpu: Gpu, predicted: Mapping[ProcessKey, int], quick: Collection[ProcessKey]
) -> GpuSummary:
    users: dict[str, int] = {}
    peaks = []
    is_quick = False
    for process in gpu.processes:
        user = process.user or "?"
        users[user] = users.get(user, 0) + (process.used_memory or 0)
        key = process_key(sample.host.name, gpu, process)
        peak = predicted.get(key)
        if peak is not None:
            peaks.append(peak)
            is_quick = is_quick or key in quick
    return GpuSummary(
        index=gpu.index,
        label=gpu_name(gpu, instance_names(sample.gpus)),
        uuid=gpu.uuid,
        name=gpu.name,
        state=gpu.state,
        reason=gpu.reason,
        used=gpu.memory.used,
        total=gpu.memory.total,
        predicted=sum(peaks) if peaks else None,
        is_quick=is_quick,
        utilization=gpu.utilization,
        processes=len(gpu.processes),
        # Here, on the host's own thread: the screen shows thousands of them at once.
        users=_largest_first(users),
    )


def user_totals(hosts: Iterable[HostSummary]) -> dict[str, int]:
    """Bytes that each user's processes hold on all hosts that are up, the largest first."""
    return _largest_first(_added_up(host.users for host in hosts if host.is_up))


def _added_up(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for users in parts:
        for user, size in users.items():
            totals[user] = totals.get(user, 0) + size
    return totals


def _largest_first(users: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(users.items(), key=lambda entry: (-entry[1], entry[0])))


def job_summaries(hosts: Iterable[HostSummary]) -> tuple[RankedJob, ...]:
    """The jobs of several ranks on all hosts that are up."""
    return ranked_jobs(
        msgspec.structs.replace(reading, host=host.name) for host in hosts if host.is_up for reading in host.ranks
    )
