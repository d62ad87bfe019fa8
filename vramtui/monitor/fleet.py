"""Many hosts at once: each has a thread, a session and a summary; the dashboard watches one of them."""

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation import readings
from vramtui.core.observation.snapshot import device_of
from vramtui.core.runs.ranked_jobs import RankReading, rank_readings
from vramtui.core.schema.workload import Workload
from vramtui.monitor.jobs import EarlierSamples, Jobs, Presets, no_jobs
from vramtui.monitor.poller import Poller, ReadOverdue, ReadResult
from vramtui.monitor.session import MonitorSession, RecordedPeaks

SETTLED = 4  # intervals after which every host that answers has its session
MANY = 32  # hosts from which on the garbage collector takes long to go through the sessions
GIVEN = 8  # samples that may be on their way to the screen
CONNECTING = "connecting"
# The columns by which GPUs and jobs can be sorted.
FleetColumn = Literal["host", "gpu", "used", "predicted", "utilization", "state", "users"]
JobColumn = Literal["job", "user", "ranks", "used", "predicted", "imbalance", "worst"]


@dataclass(frozen=True)
class RemoteHost:
    """A host under the name that the user gave, with its sources."""

    name: str
    source: readings.Source
    jobs: Jobs = no_jobs
    peaks: RecordedPeaks | None = None
    past: EarlierSamples | None = None


class GpuSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU in one line.

    Attributes:
        label: its index; a MIG instance's also tells it from others on the same GPU.
        predicted: the sum of the predicted peaks of its matched processes, in bytes.
        is_quick: a nearer estimate will replace one of them.
        users: bytes that each user's processes hold, the largest first.
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
    users: dict[str, int]


class HostSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A host now. It `is_up` while samples come; `age` is seconds since the latest; `users` is bytes by user."""

    name: str
    gpus: tuple[GpuSummary, ...] = ()
    is_up: bool = False
    age: float | None = None
    failure: str = ""
    alerts: int = 0
    ranks: tuple[RankReading, ...] = ()
    users: dict[str, int] = {}


class _Entry:
    """One host. Hold `lock` to use its session while it is not the current host."""

    __slots__ = ("arrived", "failure", "fresh", "given", "host", "lock", "session", "summary")

    def __init__(self, host: RemoteHost, session: MonitorSession) -> None:
        self.host = host
        self.session = session
        self.lock = threading.Lock()
        self.summary = HostSummary(name=host.name)  # of the latest sample
        self.arrived: float | None = None
        self.failure: SourceFailed | None = None
        self.fresh: readings.Sample | None = None
        self.given: deque[readings.Sample] = deque(maxlen=GIVEN)


class Fleet:
    """Reads every host on a thread of its own, so that one that hangs does not hold up the others.

    It is also the dashboard's source: that of the current host, at first `hosts[0]`. The sessions of the others take
    their samples here. Ages go by `clock`, whatever the hosts' clocks say.
    """

    __slots__ = (
        "_changed", "_clock", "_entries", "_interval", "_is_closed", "_pollers", "_settles_at",
        "_working", "current", "hosts",
    )  # fmt: skip

    name = "fleet"

    def __init__(
        self, hosts: Sequence[RemoteHost], interval: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.hosts = tuple(hosts)
        self.current = self.hosts[0].name
        self._interval, self._clock = interval, clock
        self._entries: dict[str, _Entry] = {}
        self._pollers: list[Poller] = []
        self._changed = threading.Condition()
        self._working = threading.Lock()  # one host at a time: they would only take the interpreter from each other
        self._settles_at: float | None = None
        self._is_closed = False

    @property
    def host(self) -> str:
        return self.current

    def read(self) -> readings.Sample:
        """Wait for the current host's next sample; raise SourceFailed if the current host fails meanwhile."""
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
                    raise SourceFailed("the dashboard was closed.")
                self._changed.wait()

    def close(self) -> None:
        for poller in self._pollers:
            poller.stop()
        for host in self.hosts:
            host.source.close()
        with self._changed:  # `read` must not wait any more
            self._is_closed = True
            self._changed.notify_all()

    def begin(self, make_session: Callable[[RemoteHost], MonitorSession]) -> MonitorSession:
        """Begin to read all hosts; return the session of the current one."""
        msgspec.json.Decoder(Workload)  # msgspec crashes if two threads make it inspect a type at once
        self._entries = {host.name: _Entry(host, make_session(host)) for host in self.hosts}
        if len(self.hosts) >= MANY:
            self._settles_at = self._clock() + SETTLED * self._interval
        for entry in self._entries.values():
            if entry.host.past is not None:
                entry.session.backfill(entry.host.past)
            poller = Poller(entry.host.source, self._interval, partial(self._take, entry))
            self._pollers.append(poller)
            poller.start()
        return self._entries[self.current].session

    def switch(self, name: str) -> MonitorSession:
        """Make another host the current one; return its session, which has all its samples until now."""
        entry = self._entries[name]
        with self._changed, entry.lock:
            entry.fresh = None  # from now on its samples go through the dashboard
            self.current = name
            self._changed.notify_all()
        return entry.session

    def take_library(self, presets: Presets) -> None:
        """Match the processes of all other hosts by these; the dashboard does so for the current one."""
        for name, entry in self._entries.items():
            if name != self.current:
                with entry.lock:
                    entry.session.take_presets((), presets)

    def is_current(self, sample: readings.Sample) -> bool:
        """Return whether a sample that `read` gave is from the host that is current now."""
        return any(sample is one for one in self._entries[self.current].given)

    def note_sample(self) -> None:
        """The dashboard has handed the latest sample to the current host's session."""
        self._summarise(self._entries[self.current])

    def finish_runs(self, patience: float) -> None:
        """Finish the runs of all other hosts; the dashboard does so for the current one."""
        for name, entry in self._entries.items():
            if name != self.current and entry.lock.acquire(timeout=patience / len(self._entries)):
                try:
                    entry.session.finish_runs(0.0)
                finally:
                    entry.lock.release()

    def summaries(self) -> tuple[HostSummary, ...]:
        now, summaries = self._clock(), []
        for entry in self._entries.values():
            age = None if entry.arrived is None else max(0.0, now - entry.arrived)
            is_up = age is not None and age <= readings.silence_limit(self._interval) and entry.failure is None
            failure = "" if entry.failure is None else entry.failure.message
            if not failure and not is_up:
                failure = CONNECTING if age is None else "no answer"
            summaries.append(msgspec.structs.replace(entry.summary, is_up=is_up, age=age, failure=failure))
        return tuple(summaries)

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
                    if self._settles_at is not None and self._clock() > self._settles_at:
                        # Once: the sessions of many hosts stay until the end, and a collection stops every thread.
                        self._settles_at = None
                        gc.collect()
                        gc.freeze()

    def _summarise(self, entry: _Entry) -> None:
        """Summarise a host's latest sample on the host's own thread: the screen shows thousands of GPUs at once."""
        session, sample = entry.session, entry.session.sample
        if sample is None:
            return
        estimates = session.estimates()
        predicted = {key: answer.process for key, answer in estimates.items() if answer is not None}
        devices = {gpu.uuid: device_of(gpu) for gpu in sample.gpus} if session.matched else {}
        quick = frozenset(
            key
            for key, preset_file in session.matched.items()
            if key.gpu_uuid in devices and session.is_quick(preset_file, devices[key.gpu_uuid])
        )
        summaries = []
        for gpu in readings.usable_gpus(sample.gpus):  # a GPU with MIG instances would be counted twice
            keys = [readings.process_key(sample.host.name, gpu, process) for process in gpu.processes]
            peaks = [predicted[key] for key in keys if key in predicted]
            by_user = ({process.user or "?": process.used_memory or 0} for process in gpu.processes)
            summaries.append(
                GpuSummary(
                    index=gpu.index,
                    label=readings.gpu_name(gpu, readings.instance_names(sample.gpus)),
                    uuid=gpu.uuid,
                    name=gpu.name,
                    state=gpu.state,
                    reason=gpu.reason,
                    used=gpu.memory.used,
                    total=gpu.memory.total,
                    predicted=sum(peaks) if peaks else None,
                    is_quick=any(key in quick for key in keys if key in predicted),
                    utilization=gpu.utilization,
                    users=_added_up(by_user),
                )
            )
        entry.summary = HostSummary(
            name=entry.host.name,
            gpus=tuple(summaries),
            alerts=len(session.alerts),
            ranks=rank_readings(sample, session.history.peak_of, predicted.get, quick),
            users=_added_up(gpu.users for gpu in summaries),
        )


def user_totals(hosts: Iterable[HostSummary]) -> dict[str, int]:
    """Return the bytes that each user's processes hold on all hosts that are up, the largest first."""
    return _added_up(host.users for host in hosts if host.is_up)


def _added_up(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for users in parts:
        for user, size in users.items():
            totals[user] = totals.get(user, 0) + size
    return dict(sorted(totals.items(), key=lambda entry: (-entry[1], entry[0])))
