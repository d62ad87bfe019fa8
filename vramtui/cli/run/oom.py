"""Why a job ran out of memory, and what would have been small enough."""

from collections.abc import Iterator

import msgspec

from vramtui.cli.run.monitor import GpuWatch
from vramtui.cli.run.results import CompletedRun, RankResult
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import PHASE_TITLES
from vramtui.core.observation.oom.advice import sentences_of
from vramtui.core.observation.oom.read import read_oom
from vramtui.core.observation.oom.report import OomReport
from vramtui.core.observation.probe_messages import ObservedJob, OutOfMemory
from vramtui.core.observation.readings import Process
from vramtui.monitor.job_reports import memory_by_pid, oom_report

MOST_OTHERS = 5


def fatal_oom(rank: RankResult, others: tuple[Process, ...] = ()) -> OomReport | None:
    """What the process died of, if it was memory: as the probe told it, else by the exception that ended it.

    Args:
        rank: the process on one GPU.
        others: other processes there, as the driver lists them.
    """
    total = rank.device.total_memory
    if rank.out_of_memory is not None:
        return oom_report(rank.out_of_memory, total, others)
    report = _from_message(rank.job, rank.counters.index)
    if report is None:
        return None
    return msgspec.structs.replace(report, total=total, others=memory_by_pid(others) or report.others)


def oom_lines(rank: RankResult, finished: CompletedRun, watch: GpuWatch | None) -> Iterator[str]:
    """The report's part on it; nothing where the process did not die of memory."""
    pids = frozenset(job.pid for job in finished.jobs)
    others = () if watch is None or rank.gpu is None else watch.others(rank.gpu.uuid, pids)
    report = fatal_oom(rank, others)
    if report is None:
        return
    when = "" if rank.out_of_memory is None else f" in {moment_of(rank.out_of_memory)}"
    yield f"\n{printable(rank.title)} ran out of memory{when}"
    yield from (f"  {sentence}" for sentence in sentences_of(report))
    yield f"  asked for                  {format_bytes(report.asked, 2)}"
    yield f"  free on the card           {format_bytes(report.free, 2)}"
    yield f"  allocated                  {format_bytes(report.allocated, 2)}"
    yield f"  cached but unusable        {format_bytes(report.unallocated, 2)}"
    for other in others[:MOST_OTHERS]:
        yield f"  also on the card           {_other(other)}"
    if len(others) > MOST_OTHERS:
        yield f"                             and {len(others) - MOST_OTHERS} more"
    yield from _advice(rank, finished, others)


def moment_of(oom: OutOfMemory) -> str:
    """`forward of step 3`; the step alone where the phase is not known."""
    return f"{'' if oom.phase is None else PHASE_TITLES[oom.phase] + ' of '}step {oom.step}"


def _other(process: Process) -> str:
    name = printable(process.command_or_name or "?")[:60]
    return f"{format_bytes(process.used_memory, 2)}  pid {process.pid} {printable(process.user or '?')} {name}"


def _advice(rank: RankResult, finished: CompletedRun, others: tuple[Process, ...]) -> Iterator[str]:
    """What change of the preset the planner would have made."""
    if finished.preset is None:
        yield "  with --preset NAME this report names the change that would have fitted"
        return
    from vramtui.cli.oom import advice_lines, plan_within  # only where a job ran out of memory

    name, taken = printable(finished.preset.key), sum(process.used_memory or 0 for process in others)
    try:
        plan = plan_within(finished.preset, rank.device, rank.device.total_memory - taken)
    except UserError as error:
        yield f"  {name} cannot be planned: {printable(str(error))}"
        return
    yield from (f"  {line}" for line in advice_lines(name, plan))


def _from_message(job: ObservedJob, device: int) -> OomReport | None:
    if job.end is None or not job.end.out_of_memory:
        return None
    text = job.end.message
    if f"GPU {device} " not in text and len(job.peaks) > 1:
        return None
    try:
        return read_oom(text)
    except UserError:
        return OomReport()
