"""What the Fleet screen shows: rows by host and GPU, in order and filtered, and what was chosen among them; jobs of
several ranks, a row for each and, of one that is opened, for each rank.
"""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from vramtui.app.ui.columns import ColumnSort
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


class JobRow(msgspec.Struct, frozen=True):
    """A job or, with `rank`, one rank of it."""

    job: RankedJob
    rank: Rank | None = None
    is_open: bool = False

    @property
    def id(self) -> tuple[str, str]:
        """What stays the same while all else about it changes."""
        return (f"{self.job.job} {self.job.user} {self.job.size}", "" if self.rank is None else str(self.rank.rank))

    @property
    def is_worst(self) -> bool:
        """Whether it is the rank that its job's row names."""
        return self.rank is not None and self.rank is self.job.worst


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
    """Knows what a person chose among the jobs: order, row, and which are opened."""

    __slots__ = ("_chosen", "_opened", "_rows")

    COLUMNS = get_args(JobColumn)
    FROM_THE_LARGEST = ("ranks", "used", "predicted", "worst", "imbalance")

    def __init__(self) -> None:
        super().__init__("used")
        self._chosen: tuple[str, str] | None = None
        self._opened: set[tuple[str, str]] = set()
        self._rows: tuple[JobRow, ...] = ()

    def choose(self, row: tuple[str, str]) -> None:
        """Put the cursor on this one."""
        self._chosen = row

    @property
    def selected(self) -> JobRow | None:
        return next((row for row in self._rows if row.id == self._chosen), self._rows[0] if self._rows else None)

    def toggle(self) -> Rank | None:
        """Open or close the chosen job; on a rank nothing changes, and it is returned."""
        row = self.selected
        if row is None or row.rank is not None:
            return None if row is None else row.rank
        self._opened ^= {row.id}
        return None

    def rows(self, jobs: Sequence[RankedJob], wanted: str) -> tuple[JobRow, ...]:
        """What there is to show of those that hold every word of `wanted`."""
        rows: list[JobRow] = []
        for job in self._in_order([job for job in jobs if _has(job, wanted)]):
            heading = JobRow(job)
            is_open = heading.id in self._opened
            rows.append(msgspec.structs.replace(heading, is_open=is_open))
            rows += [JobRow(job, rank) for rank in job.ranks] if is_open else []
        self._rows = tuple(rows)
        return self._rows

    def _in_order(self, jobs: list[RankedJob]) -> list[RankedJob]:
        key = _JOB_KEYS[self.sort]
        known = [job for job in jobs if key(job) is not None]
        known.sort(key=key, reverse=self.falls)
        return known + [job for job in jobs if key(job) is None]


def _has(job: RankedJob, wanted: str) -> bool:
    """Whether it has every word: anywhere, or where `host:`, `user:` or `job:` says."""
    if not wanted.strip():
        return True
    hosts = " ".join(sorted({rank.host for rank in job.ranks}))
    texts = {"host": hosts, "user": job.user or "", "job": job.job}
    every = " ".join((*texts.values(), printable(job.command or ""))).lower()
    for word in wanted.lower().split():
        form, colon, value = word.partition(":")
        if value not in texts[form].lower() if colon and form in texts else word not in every:
            return False
    return True


IDLE = 0.02  # of a GPU's memory, which the driver has besides what it reserves
FORMS = ("host", "user", "gpu", "state")


class FleetRow(msgspec.Struct, frozen=True):
    """A GPU of a host; `gpu` is None of a host of which none is known."""

    host: HostSummary
    gpu: GpuSummary | None

    @property
    def id(self) -> tuple[str, str]:
        """What stays the same while all else about it changes."""
        return self.host.name, "" if self.gpu is None else self.gpu.uuid

    @property
    def state(self) -> str:
        """How it is: nothing old is ever said to be up."""
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
        """Who holds memory there, who holds most first."""
        return "" if self.gpu is None else " ".join(self.gpu.users)


class FleetView(msgspec.Struct, frozen=True):
    """The rows, of GPUs or of jobs; `totals` by user, how many hosts there are and are up, and how many GPUs
    nobody uses.
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


_KEYS: dict[FleetColumn, Callable[[FleetRow], Any]] = {
    "gpu": lambda row: None if row.gpu is None else (row.gpu.name, row.gpu.index),
    "used": lambda row: None if row.gpu is None else row.gpu.used,
    "predicted": lambda row: None if row.gpu is None else row.gpu.predicted,
    "utilization": lambda row: None if row.gpu is None else row.gpu.utilization,
    "state": lambda row: row.state,
    "users": lambda row: row.users or None,
}


class FleetModel(ColumnSort[FleetColumn]):
    """Knows what a person chose: order, filter, row."""

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
        """Put the cursor on this one."""
        self._chosen = row

    @property
    def selected(self) -> FleetRow | None:
        first = self._rows[0] if self._rows else None
        return first if self._chosen is None else next((row for row in self._rows if row.id == self._chosen), first)

    def view(self, hosts: Sequence[HostSummary], current: str) -> FleetView:
        return self._jobs_view(hosts, current) if self.by_job else self._gpus_view(hosts, current)

    def _jobs_view(self, hosts: Sequence[HostSummary], current: str) -> FleetView:
        jobs = self.jobs
        rows = jobs.rows(job_summaries(hosts), self.filter)
        chosen = jobs.selected
        return FleetView(
            jobs=rows,
            chosen_job=None if chosen is None else chosen.id,
            job_sort=jobs.sort,
            jobs_fall=jobs.falls,
            current=current,
            filter=self.filter,
            hosts=len(hosts),
            up=sum(host.is_up for host in hosts),
        )

    def _gpus_view(self, hosts: Sequence[HostSummary], current: str) -> FleetView:
        every = [FleetRow(host, gpu) for host in hosts for gpu in (host.gpus or (None,))]
        matching = [row for row in every if holds(row, self.filter)] if self.filter.strip() else every
        rows = self._rows = tuple(self._in_order(matching))
        up = [gpu for host in hosts if host.is_up for gpu in host.gpus]
        chosen = self.selected
        return FleetView(
            rows=rows,
            chosen=None if chosen is None else chosen.id,
            current=current,
            sort=self.sort,
            falls=self.falls,
            filter=self.filter,
            total=sum(row.gpu is not None for row in every),
            hosts=len(hosts),
            up=sum(host.is_up for host in hosts),
            used=sum(gpu.used or 0 for gpu in up),
            capacity=sum(gpu.total or 0 for gpu in up),
            free=sum(gpu.state == "ok" and not gpu.users and (gpu.used or 0) < IDLE * (gpu.total or 0) for gpu in up),
            totals=tuple(user_totals(hosts).items()),
        )

    def _in_order(self, rows: list[FleetRow]) -> list[FleetRow]:
        if self.sort == "host":
            return rows[::-1] if self.reverse else rows
        key = _KEYS[self.sort]
        keys = [key(row) for row in rows]
        places = [at for at, value in enumerate(keys) if value is not None]
        places.sort(key=keys.__getitem__, reverse=self.falls)
        return [rows[at] for at in places] + [row for row, value in zip(rows, keys, strict=True) if value is None]


def holds(row: FleetRow, wanted: str) -> bool:
    """Whether a row has every word: anywhere, or where `host:`, `user:`, `gpu:` or `state:` says."""
    name = "" if row.gpu is None else f"{row.gpu.index} {row.gpu.name}"
    texts = {"host": row.host.name, "user": row.users, "gpu": name, "state": row.state}
    every = f"{row.host.name} {texts['user']} {name} {texts['state']}".lower()
    for word in wanted.lower().split():
        form, colon, value = word.partition(":")
        if colon and form in FORMS:
            names = texts[form].lower().split()
            if form == "user":
                if value and not any(name.startswith(value) for name in names):
                    return False
            elif form == "gpu":
                if value and value not in names:
                    return False
            elif value not in texts[form].lower():
                return False
        elif word not in every:
            return False
    return True
