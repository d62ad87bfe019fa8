"""What the jobs' own probes report, beside the process and the card that the driver shows."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from vramtui.core.estimate.estimate import Moment
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.readings import Gpu, Process

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob

Jobs = Callable[[], Sequence["ObservedJob"]]


def no_jobs() -> "Sequence[ObservedJob]":
    """No job reports anything."""
    return ()


def reported_ledger(jobs: Jobs, gpu: Gpu, process: Process) -> Ledger | None:
    """What a process on that card reports of itself; None where it reports nothing."""
    found = find_job(jobs, process.pid, gpu.uuid)
    return None if found is None else found[0].ledger(found[1])


def reported_moments(jobs: Jobs, gpu: Gpu, process: Process) -> tuple[Moment, ...]:
    """The ends of the phases that a process reported on that card."""
    found = find_job(jobs, process.pid, gpu.uuid)
    if found is None:
        return ()
    job, device = found
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


def find_job(jobs: Jobs, pid: int, uuid: str) -> "tuple[ObservedJob, int] | None":
    """The job of that process, and its own number for the card."""
    for job in jobs():
        if job.pid == pid and job.hello is not None:
            for device in job.hello.devices:
                if device.uuid is not None and device.uuid.removeprefix("GPU-") == uuid.removeprefix("GPU-"):
                    return job, device.index
    return None
