"""Jobs that told of an allocation that failed, as alerts: in the words of `vramtui oom`."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from vramtui.core.observation.alerts import Alert
from vramtui.core.observation.oom.report import OomReport
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample
from vramtui.monitor.probes import bare_uuid

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob, OutOfMemory

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


def memory_by_pid(processes: Iterable[Process]) -> dict[int, int]:
    """Bytes that each holds; those of which nobody knows are left out."""
    return {process.pid: process.used_memory for process in processes if process.used_memory}


def _alert(sample: Sample, gpu: Gpu, pid: int, report: OomReport) -> Alert:
    words = " ".join(f"{sentence.removesuffix('.')}." for sentence in report.sentences())
    started = next((one.started_at for one in gpu.processes if one.pid == pid), None)
    return Alert(
        kind="out_of_memory",
        gpu_uuid=gpu.uuid,
        gpu_index=gpu.index,
        process=ProcessKey(sample.host.name, gpu.uuid, pid, started),
        sentence=f"pid {pid}, GPU {gpu.index}. {words}",
        since=0.0,
    )
