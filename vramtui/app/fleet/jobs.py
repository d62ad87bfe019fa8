"""Jobs of several ranks on the Fleet screen: a row for each job and, of one that is opened, for each rank."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from vramtui.app.ui.columns import ColumnSort
from vramtui.core.base.text import printable
from vramtui.core.runs.ranked_jobs import Rank, RankedJob
from vramtui.monitor.fleet import JobColumn


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


_KEYS: dict[JobColumn, Callable[[RankedJob], Any]] = {
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
        key = _KEYS[self.sort]
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
