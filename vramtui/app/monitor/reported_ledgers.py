"""What the jobs' own probes tell, beside the process and the card that the driver shows."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from vramtui.app.state import Panel, ProcessRow
from vramtui.core.estimate.estimate import Moment
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.readings import Gpu, Process
from vramtui.core.observation.snapshot import observed_ledger

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob

Jobs = Callable[[], Sequence["ObservedJob"]]


def nobody() -> "Sequence[ObservedJob]":
    """No job tells anything."""
    return ()


def told_of(jobs: Jobs, gpu: Gpu, process: Process) -> Ledger | None:
    """What a process on that card tells of itself; None where it tells nothing."""
    found = find_job(jobs, process.pid, gpu.uuid)
    return None if found is None else found[0].ledger(found[1])


def told_ledger(jobs: Jobs, row: ProcessRow) -> Ledger:
    """The observed side of a row's process: its peak as the driver shows it, and what the job itself tells."""
    told = None if row.process is None else told_of(jobs, row.gpu, row.process)
    return observed_ledger(row.peak, told)


def told_moments(jobs: Jobs, panel: Panel | None) -> tuple[Moment, ...]:
    """The ends of the phases that the panel's process reported on the panel's card."""
    if panel is None or panel.process is None or panel.gpu is None:
        return ()
    found = find_job(jobs, panel.process.pid, panel.gpu.uuid)
    if found is None:
        return ()
    job, device = found
    return tuple(
        Moment(
            phase=end.phase,
            step=end.step,
            allocated=end.allocated,
            reserved=end.reserved,
            # A phase that stayed below an earlier peak tells no peak of its own: it was at least what it ended with.
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
