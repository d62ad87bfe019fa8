"""What a finished run came to: what probes told of each process, what the driver showed, what a preset says."""

import msgspec

from vramtui.cli.run.monitor import GpuWatch
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.probe_messages import MemoryCounters, ObservedJob, OutOfMemory, ProbeDevice
from vramtui.core.observation.readings import Gpu
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.dryrun.traces import Traces
from vramtui.monitor.predictor import LazyDefault, Predictor


class CompletedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A command that ended: its exit code as a shell gives it, times in seconds since the epoch, and who told what.

    `preset` is what it is compared with, and `traces` has its estimate where that is the command's own trace.
    """

    command: tuple[str, ...]
    code: int
    started_at: float
    ended_at: float
    jobs: tuple[ObservedJob, ...]
    preset: PresetFile | None = None
    traces: Traces | None = None


class RankResult(msgspec.Struct, frozen=True, kw_only=True):
    """One process on one GPU.

    Attributes:
        reported: the device as the job knows it, and `gpu` as the driver does; None where neither said.
        counters: PyTorch's own peaks.
        ledger: the observed side, its process line from the driver.
        device: the card that a prediction is made for.
        estimate: that prediction; None without a preset or where it cannot be estimated.
    """

    job: ObservedJob
    counters: MemoryCounters
    reported: ProbeDevice | None = None
    gpu: Gpu | None = None
    ledger: Ledger
    device: Device
    estimate: Estimate | None = None

    @property
    def title(self) -> str:
        """Which process and which card, in words."""
        hello = self.job.hello
        rank = "" if hello is None or hello.rank is None else f"rank {hello.rank}, "
        number = self.counters.index if self.gpu is None else self.gpu.index
        name = "" if self.reported is None else f" {self.reported.name}"
        return f"{rank}pid {self.job.pid} on GPU {number}{name}"

    @property
    def peak(self) -> tuple[str, int] | None:
        """The phase and step in which allocated was highest; None where that was not noted."""
        known = [end for end in self.job.moments if end.device == self.counters.index and end.peak_allocated]
        highest = max(known, key=lambda end: end.peak_allocated or 0, default=None)
        if highest is None or highest.peak_allocated != self.counters.allocated_peak:
            return None
        return highest.phase, highest.step

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The last time that the allocator gave up, if the process may have died of it."""
        died = self.job.end is None or self.job.end.out_of_memory
        mine = [oom for oom in self.job.ooms if oom.device == self.counters.index]
        return mine[-1] if mine and died else None


def seen_in(finished: CompletedRun, watch: GpuWatch | None) -> tuple[RankResult, ...]:
    """Every process that used CUDA through PyTorch, by rank."""
    rows = [
        _rank_result(finished, job, counters, watch)
        for job in finished.jobs
        for counters in job.peaks.values()
        if counters.reserved_peak
    ]
    return tuple(sorted(rows, key=lambda seen: (_rank(seen.job), seen.job.pid, seen.counters.index)))


def _rank(job: ObservedJob) -> int:
    return job.hello.rank if job.hello is not None and job.hello.rank is not None else 1 << 30


def _rank_result(
    finished: CompletedRun, job: ObservedJob, counters: MemoryCounters, watch: GpuWatch | None
) -> RankResult:
    devices = () if job.hello is None else job.hello.devices
    reported = next((device for device in devices if device.index == counters.index), None)
    gpu = None
    if watch is not None:
        gpu = watch.gpu(None if reported is None else reported.uuid, counters.index, job.pid)
    device = _device(reported, gpu)
    process = None if watch is None or gpu is None else watch.peak(gpu.uuid, job.pid)
    return RankResult(
        job=job,
        counters=counters,
        reported=reported,
        gpu=gpu,
        ledger=job.ledger_beside(counters.index, process),
        device=device,
        estimate=_estimate(finished.preset, device, finished.traces),
    )


def _device(reported: ProbeDevice | None, gpu: Gpu | None) -> Device:
    if reported is not None:
        return Device(name=reported.name, capability=reported.capability, total_memory=reported.total_memory)
    return CARDS[DEFAULT_CARD] if gpu is None else device_of(gpu)


def _estimate(preset: PresetFile | None, device: Device, traces: Traces | None) -> Estimate | None:
    if preset is None:
        return None

    return Predictor(LazyDefault(), traces).of_preset(preset, device)
