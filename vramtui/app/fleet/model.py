"""The Fleet screen's model: rows by host and GPU, jobs of several ranks, their order and filter, and the selection."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import msgspec

from vramtui.app.ui.lists import ColumnSort
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration
from vramtui.core.runs.ranked_jobs import Rank, RankedJob
from vramtui.monitor.fleet import (
    CONNECTING,
    FleetColumn,
    GpuSummary,
    HostSummary,
    JobColumn,
    job_summaries,
    user_totals,
)

One = TypeVar("One")
IDLE = 0.02  # of a GPU's memory, which the driver may use without reserving it


class JobRow(msgspec.Struct, frozen=True):
    """A job or, with `rank`, one rank of it."""

    job: RankedJob
    rank: Rank | None = None
    is_open: bool = False

    @property
    def id(self) -> tuple[str, str]:
        """The part that stays the same from sample to sample."""
        return (f"{self.job.job} {self.job.user} {self.job.size}", "" if self.rank is None else str(self.rank.rank))

    @property
    def is_worst(self) -> bool:
        """Return whether it is the rank that its job's row names."""
        return self.rank is not None and self.rank is self.job.worst


class FleetRow(msgspec.Struct, frozen=True):
    """A GPU of a host; `gpu` is None if none of the host's is known."""

    host: HostSummary
    gpu: GpuSummary | None

    @property
    def id(self) -> tuple[str, str]:
        """The part that stays the same from sample to sample."""
        return self.host.name, "" if self.gpu is None else self.gpu.uuid

    @property
    def state(self) -> str:
        """The host's state in words; a host without a recent sample is never up."""
        if not self.host.is_up:
            age = "" if self.host.age is None else f" for {format_duration(self.host.age)}"
            words = self.host.failure.removeprefix(self.host.name).lstrip(": ").rstrip(".")
            return f"down{age}: {words}" if words != CONNECTING else words
        if self.gpu is None:
            return "no GPU"
        if self.gpu.state != "ok":
            return f"{self.gpu.state}: {self.gpu.reason}" if self.gpu.reason else self.gpu.state
        return f"{self.host.alerts} alert{'s' if self.host.alerts > 1 else ''}" if self.host.alerts else "up"

    @property
    def users(self) -> str:
        """The users that hold memory there, the largest first."""
        return "" if self.gpu is None else " ".join(self.gpu.users)


class FleetView(msgspec.Struct, frozen=True):
    """The rows, of GPUs or of jobs; `totals` by user, the number of hosts and of those that are up, and the number of
    GPUs without users.
    """

    rows: tuple[FleetRow, ...] = ()
    chosen: tuple[str, str] | None = None
    current: str = ""
    sort: FleetColumn = "host"
    falls: bool = False
    filter: str = ""
    total: int = 0
    hosts: int = 0
    up: int = 0
    used: int = 0
    capacity: int = 0
    free: int = 0
    totals: tuple[tuple[str, int], ...] = ()
    jobs: tuple[JobRow, ...] = ()
    chosen_job: tuple[str, str] | None = None
    job_sort: JobColumn = "used"
    jobs_fall: bool = True


def in_order(items: Iterable[One], key: Callable[[One], Any], *, falls: bool) -> list[One]:
    """The items by a key; those without one come last."""
    keyed = [(key(item), item) for item in items]
    known = sorted((one for one in keyed if one[0] is not None), key=lambda one: one[0], reverse=falls)
    return [item for _, item in known] + [item for value, item in keyed if value is None]


_JOB_KEYS: dict[JobColumn, Callable[[RankedJob], Any]] = {
    "job": lambda job: job.job,
    "ranks": lambda job: job.size,
    "used": lambda job: job.used,
    "predicted": lambda job: job.predicted,
    "worst": lambda job: job.worst.fraction,
    "imbalance": lambda job: job.imbalance,
    "user": lambda job: job.user,
}


class JobModel(ColumnSort[JobColumn]):
    """Order and selection of the jobs, and which are opened."""

    __slots__ = ("_chosen", "_opened", "_rows")

    COLUMNS = get_args(JobColumn)
    FROM_THE_LARGEST = ("ranks", "used", "predicted", "worst", "imbalance")

    def __init__(self) -> None:
        super().__init__("used")
        self._chosen: tuple[str, str] | None = None
        self._opened: set[tuple[str, str]] = set()
        self._rows: tuple[JobRow, ...] = ()

    def choose(self, row: tuple[str, str]) -> None:
        self._chosen = row

    @property
    def selected(self) -> JobRow | None:
        return next((row for row in self._rows if row.id == self._chosen), self._rows[0] if self._rows else None)

    def toggle(self) -> Rank | None:
        """Open or close the selected job; if a rank is selected, return it instead."""
        row = self.selected
        if row is None or row.rank is not None:
            return None if row is None else row.rank
        self._opened ^= {row.id}
        return None

    def rows(self, jobs: Sequence[RankedJob], wanted: str) -> tuple[JobRow, ...]:
        """The rows of the jobs that contain every word: anywhere, or in the column of `host:`, `user:` or `job:`."""

        def matches(job: RankedJob) -> bool:
            hosts = " ".join(sorted({rank.host for rank in job.ranks}))
            texts = {"host": hosts, "user": job.user or "", "job": job.job}
            every = " ".join((*texts.values(), printable(job.command or ""))).lower()
            return all(_has(word, texts, every) for word in wanted.lower().split())

        rows: list[JobRow] = []
        shown = filter(matches, jobs) if wanted.strip() else jobs
        for job in in_order(shown, _JOB_KEYS[self.sort], falls=self.falls):
            heading = JobRow(job)
            is_open = heading.id in self._opened
            rows.append(msgspec.structs.replace(heading, is_open=is_open))
            rows += [JobRow(job, rank) for rank in job.ranks] if is_open else []
        self._rows = tuple(rows)
        return self._rows


def _has(word: str, texts: Mapping[str, str], every: str) -> bool:
    """Return whether a word is in the text that it names, else in `every`."""
    form, colon, value = word.partition(":")
    return value in texts[form].lower() if colon and form in texts else word in every


_KEYS: dict[FleetColumn, Callable[[FleetRow], Any]] = {
    "gpu": lambda row: None if row.gpu is None else (row.gpu.name, row.gpu.index),
    "used": lambda row: None if row.gpu is None else row.gpu.used,
    "predicted": lambda row: None if row.gpu is None else row.gpu.predicted,
    "utilization": lambda row: None if row.gpu is None else row.gpu.utilization,
    "state": lambda row: row.state,
    "users": lambda row: row.users or None,
}


class FleetModel(ColumnSort[FleetColumn]):
    """The user's choices: order, filter, row, and whether jobs are listed."""

    __slots__ = ("_chosen", "_rows", "by_job", "filter", "jobs")

    COLUMNS = get_args(FleetColumn)
    FROM_THE_LARGEST = ("used", "predicted", "utilization")

    def __init__(self) -> None:
        super().__init__("host")
        self.filter = ""
        self.by_job = False
        self.jobs = JobModel()
        self._chosen: tuple[str, str] | None = None
        self._rows: tuple[FleetRow, ...] = ()

    def choose(self, row: tuple[str, str]) -> None:
        self._chosen = row

    @property
    def selected(self) -> FleetRow | None:
        first = self._rows[0] if self._rows else None
        return first if self._chosen is None else next((row for row in self._rows if row.id == self._chosen), first)

    def view(self, hosts: Sequence[HostSummary], current: str) -> FleetView:
        up = sum(host.is_up for host in hosts)
        if self.by_job:
            jobs, rows = self.jobs, self.jobs.rows(job_summaries(hosts), self.filter)
            job = jobs.selected
            return FleetView(
                jobs=rows,
                chosen_job=None if job is None else job.id,
                job_sort=jobs.sort,
                jobs_fall=jobs.falls,
                current=current,
                filter=self.filter,
                hosts=len(hosts),
                up=up,
            )
        every = [FleetRow(host, gpu) for host in hosts for gpu in (host.gpus or (None,))]
        matching = [row for row in every if holds(row, self.filter)] if self.filter.strip() else every
        if self.sort == "host":
            self._rows = tuple(matching[::-1] if self.reverse else matching)
        else:
            self._rows = tuple(in_order(matching, _KEYS[self.sort], falls=self.falls))
        gpus = [gpu for host in hosts if host.is_up for gpu in host.gpus]
        chosen = self.selected
        return FleetView(
            rows=self._rows,
            chosen=None if chosen is None else chosen.id,
            current=current,
            sort=self.sort,
            falls=self.falls,
            filter=self.filter,
            total=sum(row.gpu is not None for row in every),
            hosts=len(hosts),
            up=up,
            used=sum(gpu.used or 0 for gpu in gpus),
            capacity=sum(gpu.total or 0 for gpu in gpus),
            free=sum(gpu.state == "ok" and not gpu.users and (gpu.used or 0) < IDLE * (gpu.total or 0) for gpu in gpus),
            totals=tuple(user_totals(hosts).items()),
        )


def holds(row: FleetRow, wanted: str) -> bool:
    """Return whether a row contains every word: anywhere, or in the column of `host:`, `user:`, `gpu:` or `state:`."""
    name = "" if row.gpu is None else f"{row.gpu.index} {row.gpu.name}"
    texts = {"host": row.host.name, "state": row.state}
    every = f"{row.host.name} {row.users} {name} {row.state}".lower()
    for word in wanted.lower().split():
        form, colon, value = word.partition(":")
        if colon and form == "user":  # the beginning of a user's name
            matches = not value or any(user.startswith(value) for user in row.users.lower().split())
        elif colon and form == "gpu":  # the index, or a whole word of the name
            matches = not value or value in name.lower().split()
        else:
            matches = _has(word, texts, every)
        if not matches:
            return False
    return True
