"""What is said of a job of several ranks, on Watch and on Fleet."""

from collections.abc import Iterable

from vramtui.app.state.view import ProcessRow
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_gib, format_percent
from vramtui.core.runs.ranked_jobs import Rank, RankedJob, RankReading, ranked_jobs


def where_of(rank: Rank) -> str:
    """`gpu03 GPU 1`."""
    return f"{printable(rank.host)} GPU {', '.join(map(str, rank.gpus))}"


def worst_of(job: RankedJob) -> str:
    """The rank to look at: how far its peak is from the prediction or, without one, what it holds."""
    worst = job.worst
    if worst.fraction is not None:
        return f"{worst.rank} on {where_of(worst)}: {format_gib(worst.peak)} GiB, {format_percent(worst.fraction)}"
    return f"{worst.rank} on {where_of(worst)}: {format_gib(worst.peak)} GiB"


def job_words(rows: Iterable[ProcessRow], host: str) -> str:
    """The heading of the rows of one job on one host: how many ranks, the worst, how uneven; empty where they are
    not ranks.
    """
    jobs = ranked_jobs(reading for row in rows if (reading := _reading(row, host)) is not None)
    if len(jobs) != 1:
        return ""
    job = jobs[0]
    gpus = sorted({gpu for rank in job.ranks for gpu in rank.gpus})
    words = [f"{len(job.ranks)} of {job.size} ranks on GPU {', '.join(map(str, gpus))}"]
    if job.imbalance is not None:
        worst = job.worst
        beyond = "" if worst.fraction is None else f" {format_percent(worst.fraction)}"
        words += [f"worst rank {worst.rank}{beyond}", f"uneven {format_percent(job.imbalance)}"]
    return ", ".join(words)


def _reading(row: ProcessRow, host: str) -> RankReading | None:
    process = row.process
    place = None if process is None else process.rank
    if row.kind != "process" or process is None or place is None:
        return None
    return RankReading(
        job=place.job,
        rank=place.rank,
        size=place.size,
        launcher=place.launcher,
        host=host,
        gpu_index=row.gpu.index,
        gpu_uuid=row.gpu.uuid,
        pid=process.pid,
        user=process.user,
        command=process.command,
        used=row.now,
        peak=row.peak,
        predicted=row.predicted,
    )
