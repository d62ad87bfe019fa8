"""What jobs told of their memory over time, part by part, for the graph; and that they ran out of it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from vramtui.core.base.curves import Curve
from vramtui.core.observation.alerts import Alert
from vramtui.core.observation.oom.advice import ways_of
from vramtui.core.observation.oom.report import OomReport
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample
from vramtui.monitor.probes import bare_uuid

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob, OutOfMemory


# From below; together they are what PyTorch has reserved.
PARTS = ("weights", "optimizer", "gradients", "activations", "cached")
MOST_CURVES = 1024  # of 56 bytes a change each


class EarlierSamples(Protocol):
    """What a source knows of the time before it was opened, as the demo does."""

    def samples(self) -> Iterable[Sample]:
        """The samples, the oldest first; the latest is older than any to come."""
        ...

    def jobs(self) -> "Iterable[tuple[float, Sequence[ObservedJob]]]":
        """What jobs had told by each of some times (seconds since the epoch), the oldest first."""
        ...


class JobMemory:
    """A curve for each process and device that told anything, with a value for each of `PARTS`.

    What is allocated beyond weights, optimizer and gradients is called activations, as in `ObservedJob.ledger`. Of the
    allocations between two looks the fullest moment that the job told of counts: a step is shorter than a second.
    """

    __slots__ = ("_curves", "_last")

    def __init__(self) -> None:
        self._curves: dict[tuple[int, str], Curve] = {}
        self._last: dict[tuple[int, str], float] = {}

    def take(self, at: float, jobs: "Iterable[ObservedJob]") -> None:
        """Note what `jobs` have told by `at`, in seconds since the epoch."""
        for job in jobs:
            for device in () if job.hello is None or job.gone else job.hello.devices:
                if device.uuid is None:
                    continue
                key = (job.pid, bare_uuid(device.uuid))
                point = _point(job, device.index, self._last.get(key, 0.0))
                if point is not None:
                    self._curves.setdefault(key, Curve(len(PARTS))).add(at, point)
                    self._last[key] = job.beat.at if job.beat is not None else at
        while len(self._curves) > MOST_CURVES:
            del self._curves[next(iter(self._curves))]

    def of(self, process: Process, gpu: Gpu) -> Curve | None:
        """What the process told of its memory on that card; None where it told nothing."""
        return self._curves.get((process.pid, bare_uuid(gpu.uuid)))


def _point(job: "ObservedJob", device: int, since: float) -> tuple[int, ...] | None:
    """Bytes of each part: the fullest moment after `since` (seconds since the epoch, on the job's clock)."""
    beat = job.beat
    counters = None if beat is None else next((one for one in beat.devices if one.index == device), None)
    if beat is None or counters is None or counters.allocated is None:
        return None
    ends = (end for end in job.moments if end.device == device and end.at > since)
    moments = [end.allocated if end.peak_allocated is None else end.peak_allocated for end in ends]
    allocated = max(counters.allocated, *(size or 0 for size in moments), 0)
    left, sizes = allocated, []
    for part in ("weights", "optimizer", "gradients"):
        size = min(left, job.parts.get(part, {}).get(f"cuda:{device}", 0))
        left -= size
        sizes.append(size)
    return (*sizes, left, max(0, (counters.reserved or 0) - allocated))


STANDS = 60.0  # seconds after which it is no news any more: the job has gone on, or is gone


def oom_alerts(sample: Sample, jobs: "Iterable[ObservedJob]") -> Iterator[Alert]:
    """One for each job and card on which an allocation failed within the last minute."""
    cards = {bare_uuid(gpu.uuid): gpu for gpu in sample.gpus}
    for job in jobs:
        devices = {} if job.hello is None else {device.index: device for device in job.hello.devices}
        latest = {oom.device: oom for oom in job.ooms if 0 <= sample.taken_at - oom.at < STANDS}
        for index, oom in latest.items():
            device = devices.get(index)
            gpu = None if device is None or device.uuid is None else cards.get(bare_uuid(device.uuid))
            if device is not None and gpu is not None:
                others = (other for other in gpu.processes if other.pid != job.pid)
                yield _alert(sample, gpu, job.pid, oom_report(oom, device.total_memory, others))


def oom_report(oom: "OutOfMemory", total: int | None, others: Iterable[Process]) -> OomReport:
    """A failure that the probe told of, as `vramtui oom` reads one from a log.

    Args:
        oom: what PyTorch's allocator said.
        total: bytes of the card.
        others: other processes that the driver lists on it.
    """
    unallocated = None
    if oom.reserved is not None and oom.allocated is not None:
        unallocated = max(0, oom.reserved - oom.allocated)
    return OomReport(
        asked=oom.asked,
        total=total,
        free=oom.free,
        limit=oom.limit,
        allocated=oom.allocated,
        unallocated=unallocated,
        others=memory_by_pid(others),
    )


def memory_by_pid(processes: Iterable[Process]) -> dict[int, int | None]:
    """Bytes that each holds, None if the driver does not report it."""
    return {process.pid: process.used_memory or None for process in processes}


def _alert(sample: Sample, gpu: Gpu, pid: int, report: OomReport) -> Alert:
    ways = "; ".join(way.text for way in ways_of(report)[:1])
    words = f"{report.cause_sentence()}." + (f" {ways}." if ways else "")
    started = next((one.started_at for one in gpu.processes if one.pid == pid), None)
    return Alert(
        kind="out_of_memory",
        gpu_uuid=gpu.uuid,
        gpu_index=gpu.index,
        process=ProcessKey(sample.host.name, gpu.uuid, pid, started),
        sentence=f"pid {pid}, GPU {gpu.index}. {words}",
        since=0.0,
    )
