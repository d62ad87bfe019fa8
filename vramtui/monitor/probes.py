"""What the jobs' own probes report, beside the process and the card that the driver shows."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.estimate.estimate import Moment
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.readings import Gpu, Process, Sample
from vramtui.core.observation.snapshot import observed_ledger

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob

Jobs = Callable[[], Sequence["ObservedJob"]]


def no_jobs() -> "Sequence[ObservedJob]":
    return ()


def on_known_cards(jobs: "Sequence[ObservedJob]", sample: Sample | None) -> "Sequence[ObservedJob]":
    """The jobs; a device whose uuid no card of `sample` has is the card that the driver shows the process on, by its
    index where there are several. Old versions of PyTorch tell no uuid, and MIG instances another one.
    """
    if not jobs or sample is None:
        return jobs
    known = {bare_uuid(gpu.uuid) for gpu in sample.gpus}
    return tuple(job if _is_placed(job, known) else _placed(job, sample, known) for job in jobs)


def _is_placed(job: "ObservedJob", known: AbstractSet[str]) -> bool:
    devices = () if job.hello is None else job.hello.devices
    return all(device.uuid is not None and bare_uuid(device.uuid) in known for device in devices)


def _placed(job: "ObservedJob", sample: Sample, known: AbstractSet[str]) -> "ObservedJob":
    hello = job.hello
    if hello is None:
        return job
    cards = [gpu for gpu in sample.gpus if any(process.pid == job.pid for process in gpu.processes)]
    only = cards[0].uuid if len(cards) == len(hello.devices) == 1 else None
    by_index = {gpu.index: gpu.uuid for gpu in cards if gpu.mig_parent is None}
    devices = tuple(
        device
        if device.uuid is not None and bare_uuid(device.uuid) in known
        else msgspec.structs.replace(device, uuid=only or by_index.get(device.index))
        for device in hello.devices
    )
    return msgspec.structs.replace(job, hello=msgspec.structs.replace(hello, devices=devices))


def bare_uuid(uuid: str) -> str:
    """A card's uuid without what PyTorch leaves out of it: `GPU-` or `MIG-`."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-")


def observed_beside(jobs: Jobs, gpu: Gpu, process: Process, peak: int | None) -> Ledger:
    """What is seen of a process on that card: its `peak` as the driver shows it, in bytes, and what it reports."""
    observed_job = find_job(jobs, process.pid, gpu.uuid)
    if observed_job is None:
        return observed_ledger(peak)
    job, device = observed_job
    return observed_ledger(peak, job.ledger(device), is_complete=job.is_complete)


def reported_moments(jobs: Jobs, gpu: Gpu, process: Process) -> tuple[Moment, ...]:
    """The ends of the phases that a process reported on that card."""
    observed_job = find_job(jobs, process.pid, gpu.uuid)
    if observed_job is None:
        return ()
    job, device = observed_job
    return tuple(
        Moment(
            phase=end.phase,
            step=end.step,
            allocated=end.allocated,
            reserved=end.reserved,
            # A phase that stayed below an earlier peak reports no peak of its own: it was at least what it ended with.
            peak_allocated=end.allocated if end.peak_allocated is None else end.peak_allocated,
            peak_reserved=end.peak_reserved,
        )
        for end in job.moments
        if end.device == device and end.allocated is not None
    )


def reporting(jobs: Jobs) -> set[tuple[int, str]]:
    """The processes that have told figures of a card, each with that card's bare uuid."""
    return {
        (job.pid, bare_uuid(device.uuid))
        for job in jobs()
        if job.hello is not None and not job.gone
        for device in job.hello.devices
        if device.uuid is not None and device.index in job.peaks
    }


def find_job(jobs: Jobs, pid: int, uuid: str) -> "tuple[ObservedJob, int] | None":
    """The job of that process, and its own number for the card."""
    for job in jobs():
        if job.pid == pid and job.hello is not None:
            for device in job.hello.devices:
                if device.uuid is not None and bare_uuid(device.uuid) == bare_uuid(uuid):
                    return job, device.index
    return None
