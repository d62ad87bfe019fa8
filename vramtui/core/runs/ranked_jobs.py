"""Jobs of several ranks: what each rank holds and was predicted to hold, on as many hosts as it runs on."""

import re
from collections.abc import Callable, Collection, Iterable

import msgspec

from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample, process_key

TOGETHER = 60.0  # seconds in which the ranks of a job start; the same command later is another job
# The parts of a command line that differ between a job's ranks.
_RANK = re.compile(r"\s*--(?:local|node)[-_]rank[= ]\d+|(?<=[_:])(?:TP|PP|DP|EP)\d+|(?<=[Ww]orker[-_ ])\d+")


def job_of(process: Process) -> str:
    """Return what the processes of one job share: the launcher's job, or else user and command without the rank."""
    if process.rank is not None:
        return f"{process.user or ''} {process.rank.job} {process.rank.size}"
    return f"{process.user or ''} {_RANK.sub('', process.command_or_name or str(process.pid))}"


def are_together(one: Process, other: Process) -> bool:
    """Return whether two processes with the same `job_of` started as one job; a launcher's ranks always did."""
    if one.rank is not None or one.started_at is None or other.started_at is None:
        return True
    return abs(one.started_at - other.started_at) <= TOGETHER


def is_one_job(one: Process, other: Process) -> bool:
    """Return whether two processes are ranks of one job, or the same."""
    return one is other or (job_of(one) == job_of(other) and are_together(one, other))


class RankReading(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one process of a rank on one GPU; bytes. `peak` is the most it was seen to hold; `is_quick` says that
    a nearer estimate will replace `predicted`.
    """

    job: str
    rank: int
    size: int
    launcher: str
    host: str
    gpu_index: int
    user: str | None = None
    command: str | None = None
    used: int | None = None
    peak: int | None = None
    predicted: int | None = None
    is_quick: bool = False


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank; bytes. `predicted` is None unless all of its processes have a prediction; `is_quick` where one of those
    will be replaced by a nearer one.
    """

    rank: int
    host: str
    gpus: tuple[int, ...]
    used: int
    peak: int
    predicted: int | None
    is_quick: bool = False

    @property
    def fraction(self) -> float | None:
        """How far the peak is from the prediction: 0.1 is a tenth above it."""
        return None if not self.predicted else self.peak / self.predicted - 1


class RankedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of `size` ranks; `ranks` are those seen, in order."""

    job: str
    size: int
    launcher: str
    user: str | None
    command: str | None
    ranks: tuple[Rank, ...]

    @property
    def used(self) -> int:
        return sum(rank.used for rank in self.ranks)

    @property
    def predicted(self) -> int | None:
        """Sum of the predicted peaks; None unless every rank seen has one."""
        known = [rank.predicted for rank in self.ranks if rank.predicted is not None]
        return sum(known) if known and len(known) == len(self.ranks) else None

    @property
    def is_quick(self) -> bool:
        """Return whether a nearer estimate will replace what one rank is predicted to."""
        return any(rank.is_quick for rank in self.ranks)

    @property
    def worst(self) -> Rank:
        """The rank furthest above its prediction; without predictions the one with the highest peak."""
        predicted = [rank for rank in self.ranks if rank.fraction is not None]
        if predicted:
            return max(predicted, key=lambda rank: (rank.fraction, -rank.rank))
        return max(self.ranks, key=lambda rank: (rank.peak, -rank.rank))

    @property
    def imbalance(self) -> float | None:
        """How far the highest peak is above the mean of all: 0.0 where they are equal; None of a single rank."""
        mean = sum(rank.peak for rank in self.ranks) / len(self.ranks)
        return max(rank.peak for rank in self.ranks) / mean - 1 if len(self.ranks) > 1 and mean else None

    @property
    def missing(self) -> int:
        """Ranks that are not seen: on hosts that are not watched, of processes that have ended, or not yet on a GPU."""
        return max(0, self.size - len(self.ranks))


PeakOf = Callable[[ProcessKey], int | None]


def rank_readings(
    sample: Sample, peak_of: PeakOf, predicted_of: PeakOf, quick: Collection[ProcessKey] = ()
) -> tuple[RankReading, ...]:
    """The processes of a sample that are ranks."""
    readings = []
    for gpu in sample.gpus:
        for process in gpu.processes:
            if process.rank is not None and process.state != "exited":
                host = sample.host.name
                key = process_key(host, gpu, process)
                readings.append(rank_reading(host, gpu, process, peak_of(key), predicted_of(key), quick=key in quick))
    return tuple(filter(None, readings))


def rank_reading(
    host: str, gpu: Gpu, process: Process, peak: int | None, predicted: int | None, *, quick: bool = False
) -> RankReading | None:
    """Return the reading of a process; None if it is not a rank."""
    place = process.rank
    if place is None:
        return None
    return RankReading(
        **msgspec.structs.asdict(place),
        host=host,
        gpu_index=gpu.index,
        user=process.user,
        command=process.command_or_name,
        used=process.used_memory,
        peak=peak,
        predicted=predicted,
        is_quick=quick,
    )


def ranked_jobs(readings: Iterable[RankReading]) -> tuple[RankedJob, ...]:
    """The jobs of these, those that hold most first. Jobs of different users or sizes are never one."""
    jobs: dict[tuple[str, int, str | None], dict[int, list[RankReading]]] = {}
    for reading in readings:
        identity = (reading.job, reading.size, reading.user)
        jobs.setdefault(identity, {}).setdefault(reading.rank, []).append(reading)
    ranked = []
    for (job, size, user), by_rank in jobs.items():
        ranks = []
        for number in sorted(by_rank):
            processes = by_rank[number]
            first = processes[0]
            predictions = [one.predicted for one in processes if one.predicted is not None]
            ranks.append(
                Rank(
                    rank=number,
                    host=first.host,
                    gpus=tuple(sorted({one.gpu_index for one in processes})),
                    used=sum(one.used or 0 for one in processes),
                    peak=sum(max(one.peak or 0, one.used or 0) for one in processes),
                    predicted=sum(predictions) if len(predictions) == len(processes) else None,
                    is_quick=any(one.is_quick for one in processes),
                )
            )
        launcher = next(iter(by_rank.values()))[0].launcher
        command = by_rank[min(by_rank)][0].command
        ranked.append(RankedJob(job=job, size=size, launcher=launcher, user=user, command=command, ranks=tuple(ranks)))
    return tuple(sorted(ranked, key=lambda job: (-job.used, job.job)))
