"""What jobs told of their memory over time, part by part: what a graph of it is stacked from."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from vramtui.core.base.curves import Curve
from vramtui.core.observation.readings import Gpu, Process, Sample
from vramtui.monitor.probes import bare_uuid

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob

# From below; together they are what PyTorch has reserved.
PARTS = ("weights", "optimizer", "gradients", "activations", "cached")
MOST_CURVES = 1024  # of 56 bytes a change each


class EarlierSamples(Protocol):
    """What a source knows of the time before it was opened, as the demo does."""

    def samples(self) -> Iterable[Sample]:
        """Its samples, the oldest first; the latest is older than any to come."""
        ...

    def jobs(self) -> "Iterable[tuple[float, Sequence[ObservedJob]]]":
        """What jobs had told by each of some times (seconds since the epoch), the oldest first."""
        ...


class JobMemory:
    """A curve for each process and device that told anything, with a value for each of `PARTS`.

    What is allocated beyond weights, optimizer and gradients is called activations, as in `ObservedJob.ledger`. Of the
    allocations between two looks the fullest moment that the job told of counts: a step is shorter than a second.
    """

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
