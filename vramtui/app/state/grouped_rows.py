"""Rows under one row for each user, job, GPU or process tree: what it holds, and its processes when it is opened."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import overload

import msgspec

from vramtui.app.state.view import ProcessRow, RowId
from vramtui.core.base.text import printable, printable_line
from vramtui.core.base.units import UNKNOWN, format_gib, format_percent
from vramtui.core.observation.readings import ProcessKey
from vramtui.core.runs.ranked_jobs import Rank, RankedJob, RankReading, ranked_jobs
from vramtui.core.schema.settings import Grouping

TREE, UNKNOWN_PARENTS = "tree", "parents not known"
BRANCH = "└ "


def root_of(row: ProcessRow) -> int | None:
    """The pid of the process that started the row's tree: its own where nothing above belongs to it. None where that
    is not known: on a host whose source does not tell parents, and of a process that may not be looked at.
    """
    process = row.process
    if process is None or process.ancestors is None:
        return None
    return process.ancestors.pids[-1] if process.ancestors.pids else process.pid


def root_command(rows: Sequence[ProcessRow]) -> str:
    """The command of the process that started the tree of `rows`; empty where it is not known."""
    for row in rows:
        process = row.process
        if process is not None and process.ancestors is not None:
            above = process.ancestors
            return above.command if above.pids else process.command_or_name or ""
    return ""


def in_tree_order(rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """The rows of one tree, each after the one that started it and with its `depth` below it; else in their order."""
    pids = {row.process.pid for row in rows if row.process is not None}
    below: dict[int | None, list[ProcessRow]] = {}
    for row in rows:
        above = row.process.ancestors.pids if row.process is not None and row.process.ancestors is not None else ()
        below.setdefault(next((pid for pid in above if pid in pids), None), []).append(row)
    ordered: list[ProcessRow] = []
    _take(below, None, 0, ordered)
    return ordered


def _take(below: dict[int | None, list[ProcessRow]], above: int | None, depth: int, rows: list[ProcessRow]) -> None:
    """The rows below one process, with all that is below them."""
    for row in below.pop(above, ()):
        rows.append(msgspec.structs.replace(row, depth=depth) if depth else row)
        _take(below, row.process.pid if row.process is not None else None, depth + 1, rows)


GROUPINGS: tuple[Grouping, ...] = ("none", "job", "user", "gpu", "tree")
OPEN, CLOSED = "▾", "▸"
# The ranks of a job are started together; the same command minutes later is another job.
TOGETHER = 60.0
# What tells one rank of a job from another: the launcher's own argument, and the number in a worker's name.
_RANK = re.compile(r"\s*--(?:local|node)[-_]rank[= ]\d+|(?<=[_:])(?:TP|PP|DP|EP)\d+|(?<=[Ww]orker[-_ ])\d+")


class RowGroups(Sequence[ProcessRow]):
    """Rows in groups, each where the first of its rows stands. A job or tree of a single process is that process's
    row.

    Args:
        rows: in order; kept as `rows`.
        by: what they have in common.
        opened: the groups whose rows are shown.
        largest_first: groups are in the order of what they hold.
    """

    def __init__(
        self, rows: Sequence[ProcessRow], by: Grouping, opened: Collection[RowId], *, largest_first: bool = False
    ) -> None:
        self.rows = rows
        self.places: dict[RowId, int] = {}
        self._rows: list[ProcessRow] = []
        for identity, members in groups_of(rows, by, largest_first=largest_first):
            self._take(identity, members, by, is_open=identity in opened)

    def _take(self, identity: tuple[str, str], members: list[ProcessRow], by: Grouping, *, is_open: bool) -> None:
        start = len(self._rows)
        alone = len(members) == 1 and (by == "job" or (by == "tree" and identity[0] == TREE))
        if not alone:
            self._rows.append(_heading(identity, members, by, is_open=is_open))
            self.places[identity] = start
        shown = alone or is_open
        for row in in_tree_order(members) if by == "tree" and is_open else members:
            self.places[row.id] = len(self._rows) if shown else start
            if shown:
                self._rows.append(row)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> ProcessRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ProcessRow]: ...

    def __getitem__(self, index: int | slice) -> ProcessRow | Sequence[ProcessRow]:
        return self._rows[index]


class GroupChoice:
    """What a person chose to group by, and which groups are open.

    Args:
        by: what is grouped by from the beginning.

    Attributes:
        by: what is grouped by now.
    """

    __slots__ = ("_opened", "_rows", "by")

    def __init__(self, by: Grouping) -> None:
        self.by: Grouping = by
        self._opened: set[RowId] = set()
        self._rows: RowGroups | None = None

    def take(self, rows: Sequence[ProcessRow], *, largest_first: bool) -> RowGroups | None:
        """The rows in their groups; None where they are not grouped."""
        self._rows = None
        if self.by != "none":
            self._rows = RowGroups(rows, self.by, self._opened, largest_first=largest_first)
        return self._rows

    def find(self, wanted: RowId | None, otherwise: RowId) -> tuple[int, ProcessRow] | None:
        """The place and row of `wanted` or, where there is no such row, of the other; a closed group stands for its
        rows. None where they are not grouped.
        """
        if self._rows is None:
            return None
        places = self._rows.places
        at = places[wanted] if wanted is not None and wanted in places else places.get(otherwise, 0)
        return at, self._rows[at]

    def next(self) -> None:
        """Group by the next of job, user, GPU and process tree, or no more."""
        self.by = GROUPINGS[(GROUPINGS.index(self.by) + 1) % len(GROUPINGS)]

    def toggle(self, row: RowId, *, opened: bool | None = None) -> bool:
        """Open a group or close it; with `opened` it becomes that. False where it is no group, or is so already."""
        groups = self._rows.places if self._rows is not None else {}
        if isinstance(row, ProcessKey) or row not in groups or opened == (row in self._opened):
            return False
        self._opened ^= {row}
        return True


def job_of(row: ProcessRow) -> str:
    """What the processes of one job have in common: what their launcher says or, where it is not known, user and
    command without what tells ranks apart.
    """
    process = row.process
    if process is None:
        return ""
    if process.rank is not None:
        return f"{process.user or ''} {process.rank.job} {process.rank.size}"
    return f"{process.user or ''} {_RANK.sub('', process.command_or_name or str(process.pid))}"


def groups_of(
    rows: Sequence[ProcessRow], by: Grouping, *, largest_first: bool = False
) -> list[tuple[tuple[str, str], list[ProcessRow]]]:
    """What tells each group from the others, and its rows; in the order of the rows, or of what the groups hold."""
    groups: dict[tuple[str, str], list[ProcessRow]] = {}
    for row in rows:
        identity = _identity(row, by)
        if by == "job" and row.process is not None:
            number = 0
            while identity in groups and not _started_together(groups[identity][0], row):
                number += 1
                identity = (f"group {number}", identity[1])
        groups.setdefault(identity, []).append(row)
    if largest_first:
        return sorted(groups.items(), key=lambda group: -together(group[1])[0])
    return list(groups.items())


def together(rows: Sequence[ProcessRow]) -> tuple[int, int | None]:
    """Bytes that rows hold, and those that their processes are predicted to; None unless all of them are."""
    processes = [row for row in rows if row.process is not None]
    predictions = [row.predicted for row in processes if row.predicted is not None]
    predicted = sum(predictions) if predictions and len(predictions) == len(processes) else None
    return sum(row.now or 0 for row in rows), predicted


def _identity(row: ProcessRow, by: Grouping) -> tuple[str, str]:
    if by == "gpu":
        return ("group", row.gpu.uuid)
    if row.process is None:
        return ("group", "unattributed")
    if by == "tree":
        root = root_of(row)
        return ("group", UNKNOWN_PARENTS) if root is None else (TREE, str(root))
    return ("group", row.process.user or UNKNOWN if by == "user" else job_of(row))


def _started_together(one: ProcessRow, other: ProcessRow) -> bool:
    starts = [row.process.started_at for row in (one, other) if row.process is not None]
    if len(starts) < 2 or None in starts:
        return True
    return abs((starts[0] or 0) - (starts[1] or 0)) <= TOGETHER


def _heading(identity: tuple[str, str], members: list[ProcessRow], by: Grouping, *, is_open: bool) -> ProcessRow:
    first = members[0]
    processes = [row for row in members if row.process is not None]
    gpus = sorted({row.gpu.index for row in members})
    count = f"{len(processes)} process{'' if len(processes) == 1 else 'es'}"
    where = f"GPU {in_ranges(gpus)}"
    users = {row.process.user for row in members if row.process is not None}
    if by == "gpu":
        title = printable(first.gpu.name)
    elif first.process is None:
        title = "unattributed"
    elif by == "user":
        title = printable(first.process.user or UNKNOWN)
    elif by == "tree":
        title = printable_line(root_command(members)) if identity[0] == TREE else "parent processes not known"
    else:
        title = printable_line(first.process.command_or_name or "")
    ranks = job_words(members, "") if by == "job" else ""
    memory, predicted = together(members)
    return ProcessRow(
        "group",
        identity,
        first.gpu,
        memory,
        predicted=predicted,
        is_assumed=any(row.is_assumed for row in processes),
        is_quick=any(row.is_quick for row in processes),
        note=f"{OPEN if is_open else CLOSED} {_words(by, title, ranks or count, where, processes)}",
        gpus=in_ranges(gpus) if len(gpus) < 3 or gpus[-1] - gpus[0] == len(gpus) - 1 else f"{len(gpus)} x",
        user=(users.pop() or "") if len(users) == 1 else "",
    )


def _words(by: Grouping, title: str, place: str, where: str, members: Sequence[ProcessRow]) -> str:
    """What a group is: a job by its ranks, whose command may be long; a user or GPU by its name, and what its processes
    take of the host.
    """
    if not members:
        return f"{title}, {where}"
    if by in ("job", "tree"):
        return f"{place if ' on GPU ' in place else f'{place} on {where}'}: {title}"
    processes = [row.process for row in members if row.process is not None]
    cpu = sum(process.cpu_percent or 0 for process in processes)
    memory = sum(process.host_memory or 0 for process in processes)
    more = f", CPU {cpu:.0f} %" if cpu else ""
    return f"{title}: {place}{more}{f', RAM {format_gib(memory)} GiB' if memory else ''} on {where}"


def in_ranges(numbers: Sequence[int]) -> str:
    """Numbers in order, three and more that follow each other as a range: `0-3, 5, 6`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


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
