"""Rows of the process table: made from a sample, given predictions, filtered, sorted and grouped."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, compress, count, islice, repeat
from operator import attrgetter, ne
from typing import Any

import msgspec

from vramtui.app.state.view import HeldTotals, ProcessRow, RowId, SortColumn
from vramtui.core.base.errors import nearest
from vramtui.core.base.text import brief_command, printable, printable_line
from vramtui.core.base.units import GIB, MIB, UNKNOWN, format_bytes, format_gib, format_percent, narrow_digits
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.history import History, PeakColumns, Track, TrackTable
from vramtui.core.observation.readings import (
    Absence,
    Gpu,
    Host,
    Process,
    ProcessColumns,
    ProcessKey,
    Reading,
    Sample,
    causes,
    instance_names,
    overlap,
)
from vramtui.core.observation.snapshot import device_of
from vramtui.core.runs.ranked_jobs import Rank, RankedJob, are_together, job_of, rank_reading, ranked_jobs
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.settings import Grouping

WHY: dict[Absence, str] = {
    Absence.NOT_SUPPORTED: "not supported",
    Absence.NO_PERMISSION: "no permission",
    Absence.LOST: "GPU lost",
    Absence.DRIVER_TOO_OLD: "driver too old",
    Absence.NO_ANSWER: "no answer",
    Absence.FIRST_LOOK: "known after the next look",
    Absence.NOT_ASKED: "not asked for",
    Absence.FAILED: "the driver's answer failed",
}
KEEP_EXITED_SHOWN = 60.0
MOST_EXITED_SHOWN = 50
SMALL = 32 * MIB  # a smaller remainder shares the driver's row
# Unattributed memory has a row from so many bytes, and from such a part of its GPU on; the rest is in the sum below.
WORTH_A_ROW, WORTH_OF_GPU = 256 * MIB, 0.02
UNEVEN = 0.05  # the largest rank over the ranks' mean from which a job's heading names it
MANY = 64  # rows; fewer with an equal size are in the order of their GPUs
PLAY = 0.75  # of the last digit shown: a row whose size changes by less keeps its place
# The order on one GPU.
KIND_ORDER = {"process": 0, "instances": 1, "note": 2, "unattributed": 3, "reserved": 4, "exited": 5}
REMAINDERS = frozenset({"instances", "note", "unattributed", "reserved"})


def why(reading: Reading, metric: str) -> str:
    absence = reading.absent.get(metric)
    return WHY[absence] if absence is not None else "not known"


def last_answer(sample: Sample, gpu: Gpu, answered: Mapping[str, tuple[float, Gpu]]) -> tuple[Gpu, float | None]:
    """Return the GPU's last answer in its present state, and its age in seconds; None if the GPU answers."""
    if gpu.state == "ok" or gpu.uuid not in answered:
        return gpu, None
    at, last = answered[gpu.uuid]
    return msgspec.structs.replace(last, state=gpu.state, reason=gpu.reason), sample.taken_at - at


def remainders(gpu: Gpu, age: float | None, host: Host | None = None, grown: int | None = None) -> list[ProcessRow]:
    """Return rows for the memory of a GPU that no process holds, and for a process list that cannot be read."""

    def row(kind: Any, now: int | None, note: str = "") -> ProcessRow:  # noqa: ANN401 - a literal
        return ProcessRow(kind, (kind, gpu.uuid), gpu, now, note=note, age=None if kind == "note" else age)

    rows = []
    if (gpu.state == "ok" or age is not None) and "processes" in gpu.absent:
        rows.append(row("note", None, f"process list unavailable: {why(gpu, 'processes')}"))
    elif not gpu.processes_trusted:
        rows.append(row("note", None, "process list unreliable with this driver"))
    if gpu.mig_used:
        rows.append(row("instances", gpu.mig_used))
    unattributed, reserved = gpu.unattributed or 0, gpu.memory.reserved or 0
    if reserved and abs(unattributed) < SMALL:
        also = f", and {format_bytes(unattributed)} unattributed" if unattributed else ""
        return [*rows, row("reserved", reserved + unattributed, also)]
    if unattributed:
        known = ", ".join(causes(gpu, host)) if unattributed > 0 else overlap(gpu, grown)
        rows.append(row("unattributed", unattributed, known))
    if reserved:
        rows.append(row("reserved", reserved))
    return rows


@lru_cache(1 << 12)  # of thousands of processes many hold the same
def as_shown(count: int) -> float:
    """Return GiB as shown: rows that show the same size keep their order while their bytes change."""
    return round(count / GIB, narrow_digits(count))


@lru_cache(1 << 12)
def _steady_size(count: int, before: float | None) -> float:
    """Return the GiB that give a row its place: the size as shown, or `before` if it has hardly changed.

    Of many processes some always alternate between two sizes, and each move would shift the rows between. Rounding
    changes at half of the last digit; a place changes at three quarters of the smaller size's last digit.
    """
    shown = as_shown(count)
    if before is None or shown == before:
        return shown
    digits = max(narrow_digits(count), narrow_digits(round(before * GIB)))
    return before if abs(count / GIB - before) < PLAY * 10.0**-digits else shown


def minutes_since(process: Process, at: float) -> int | None:
    """Return the whole minutes that a process had run at time `at`; None if its start is unknown."""
    return None if process.started_at is None else max(0, int(at - process.started_at) // 60)


class RowsOnDemand(Sequence[ProcessRow]):
    """Rows that are made when they are looked at: of thousands a screen shows few."""

    __slots__ = ()

    def row(self, at: int) -> ProcessRow:
        raise NotImplementedError

    def __getitem__(self, index: int | slice) -> Any:  # noqa: ANN401 - a row, or a list of those in a slice
        places = range(len(self))[index]
        return self.row(places) if isinstance(places, int) else list(map(self.row, places))


class ProcessRows(RowsOnDemand):
    """All rows in the order of the sample: GPU by GPU, then exited processes. A GPU that does not answer has those of
    its last answer, with their age. The `now` of a GPU's rows, its part of `totals` (the figures below the rows) and
    its free bytes add up to its total.
    """

    __slots__ = ("_at", "_gpus", "_host", "_length", "_places", "_processes", "_rest", "_starts", "_tables", "totals")

    def __init__(
        self, sample: Sample, history: History, answered: Mapping[str, tuple[float, Gpu]], *, whole: bool = False
    ) -> None:
        self._at, host, names = sample.taken_at, sample.host.name, instance_names(sample.gpus)
        self._host, self._length = host, 0
        # Of each GPU, and after them of the exited processes: the place of its first row, its processes, their columns
        # with the rows and the peaks in these, the GiB that give each its place, and the rows of no running process.
        self._starts: list[int] = []
        self._processes: list[tuple[Sequence[Process], Sequence[Process]]] = []
        self._tables: list[tuple[TrackTable, Sequence[int], PeakColumns]] = []
        self._places: list[Sequence[float | None]] = []
        self._rest: list[list[ProcessRow]] = []
        self._gpus: list[tuple[Gpu, float | None, str]] = []
        folded: list[ProcessRow] = []
        users: dict[str | None, int] = {}
        alike = len({gpu.uuid for gpu in sample.gpus}) < len(sample.gpus)  # in a recording, or from a broken driver
        for reading in sample.gpus:
            gpu, age = last_answer(sample, reading, answered)
            known = history.here(host, gpu.uuid)
            listed = gpu
            if alike or len(known) != len(gpu.facts) or "processes" in gpu.absent:
                there = tuple(process for process in gpu.processes if process.pid in known)
                listed = msgspec.structs.replace(gpu, processes=there)
            self._gpus.append((gpu, age, names.get(gpu.uuid, "")))
            facts, is_whole = listed.facts, listed.facts is known.processes
            rows: Sequence[int] = range(len(facts)) if is_whole else [known[one.pid].row for one in facts]
            places = [
                None if size is None else _steady_size(size, known.place[row])
                for size, row in zip(listed.sizes, rows, strict=True)
            ]
            known.place = places if is_whole else known.place[:]
            for row, place in () if is_whole else zip(rows, places, strict=True):
                known.place[row] = place
            for user, size in listed.held_by_user.items():
                users[user] = users.get(user, 0) + size
            grown = history.grown(host, gpu.uuid) if (gpu.unattributed or 0) < 0 else None
            rest = remainders(gpu, age, sample.host, grown)
            folded += [] if whole else rest
            # The driver's part is in the GPU's bar already, and that of MIG instances in their own rows.
            least = max(WORTH_A_ROW, WORTH_OF_GPU * (gpu.memory.total or 0))
            shown = ("note", "unattributed") if abs(gpu.unattributed or 0) >= least else ("note",)
            self._append([row for row in rest if whole or row.kind in shown], listed, known, rows, places)
        gpus = {gpu.uuid: gpu for gpu in sample.gpus}
        gone = (track for track in history.exited(sample.taken_at - KEEP_EXITED_SHOWN) if track.device[0] == host)
        exited = [
            ProcessRow(
                "exited",
                track.key,
                gpus[track.device[1]],
                None,
                None if track.peak is None else track.peak.bytes,
                track.process,
                gone_at=track.gone_at,
                learned=track.peak,
            )
            for track in islice((one for one in gone if one.device[1] in gpus), MOST_EXITED_SHOWN)  # the latest
        ]
        self._append(exited)
        driver = sum(row.gpu.memory.reserved or 0 for row in folded if row.kind == "reserved")
        self.totals = HeldTotals(
            of_processes=sum(users.values()),
            users=tuple(sorted(((user or "", size) for user, size in users.items()), key=lambda one: -one[1])),
            driver=driver,
            unattributed=sum(row.now or 0 for row in folded if row.kind != "instances") - driver,
        )

    def _append(
        self,
        rest: list[ProcessRow],
        listed: Gpu | None = None,
        table: TrackTable | None = None,
        rows: Sequence[int] = (),
        places: Sequence[float | None] = (),
    ) -> None:
        names, table = {gpu.uuid: name for gpu, _, name in self._gpus if name}, table or TrackTable(("", ""))
        self._starts.append(self._length)
        self._processes.append(((), ()) if listed is None else (listed.facts, listed.processes))
        self._tables.append((table, rows, table.peaks))
        self._places.append(places)
        self._rest.append([msgspec.structs.replace(row, gpus=names.get(row.gpu.uuid, "")) for row in rest])
        self._length += len(places) + len(rest)

    def __len__(self) -> int:
        return self._length

    def hold(self) -> None:
        """Keep the peaks of now: the history goes on while the display is paused."""
        self._tables = [(table, rows, PeakColumns._make(it[:] for it in peaks)) for table, rows, peaks in self._tables]

    def _key(self, place: int, process: Process) -> ProcessKey:
        return ProcessKey(self._host, self._gpus[place][0].uuid, process.pid, process.started_at)

    def row(self, at: int) -> ProcessRow:
        place = bisect_right(self._starts, at) - 1
        at -= self._starts[place]
        (table, rows, peaks), orders = self._tables[place], self._places[place]
        if at >= len(orders):
            return self._rest[place][at - len(orders)]
        gpu, age, name = self._gpus[place]
        process, peak, track = self._processes[place][1][at], peaks.of(rows[at]), Track(table, rows[at])
        return ProcessRow(
            "process", self._key(place, process), gpu, process.used_memory, None if peak is None else peak.bytes,
            process, age=age, minutes=minutes_since(process, self._at), learned=peak, gpus=name,
            fast_since=track.close_since, fast_interval=track.looked and track.looked[2], order=orders[at],
        )  # fmt: skip

    def ids(self) -> Iterator[RowId]:
        for place, (facts, _) in enumerate(self._processes):
            yield from (self._key(place, process) for process in facts)
            yield from (row.id for row in self._rest[place])

    def places(self, wanted: Collection[RowId | None]) -> Iterator[int]:
        """Return the places of the `wanted` rows; of thousands few get a key."""
        pids = {one.pid for one in wanted if isinstance(one, ProcessKey)}
        for place, start in enumerate(self._starts):
            facts = self._processes[place][0]
            yield from (
                at
                for at, process in enumerate(facts, start)
                if process.pid in pids and self._key(place, process) in wanted
            )
            yield from (at for at, row in enumerate(self._rest[place], start + len(facts)) if row.id in wanted)

    def orders(self) -> Iterator[float | None]:
        """Return the GiB that give each row of a process its place."""
        return chain.from_iterable(
            chain(orders, repeat(None, len(rest))) for orders, rest in zip(self._places, self._rest, strict=True)
        )


def rare_columns(sample: Sample, matched: Sequence[ProcessRow], known: frozenset[SortColumn]) -> frozenset[SortColumn]:
    """Return the columns that not every host has values for and this one has; `known` columns stay."""
    columns: set[SortColumn] = set(known)
    if any(row.predicted is not None for row in matched):
        columns.add("predicted")
    if not {"sm", "job"} <= columns:
        for gpu in sample.gpus:
            rows = gpu.processes[:1] if isinstance(gpu.processes, ProcessColumns) else gpu.processes
            columns |= {"sm"} if any(row.sm_percent is not None for row in rows) else set()
        of_hosts = {id(one): one for gpu in sample.gpus for one in gpu.facts}  # on several GPUs the same
        columns |= {"job"} if any(one.job for one in of_hosts.values()) else set()
    return frozenset(columns)


# --- predictions, filter and order -----------------------------------------------------------------------------------


def _size(row: ProcessRow) -> float | None:
    return (None if row.now is None else as_shown(row.now)) if row.order is None else row.order


def _fact(path: str) -> Callable[[ProcessRow], Any]:
    fact = attrgetter(path)
    return lambda row: None if row.process is None else fact(row.process)


Order = tuple[SortColumn, bool]  # and whether it is reversed
SORT_KEYS: dict[SortColumn, Callable[[ProcessRow], Any]] = {
    "pid": _fact("pid"),
    "gpu": lambda row: (row.gpu.index, row.gpu.mig_parent or "", KIND_ORDER[row.kind], -(_size(row) or 0)),
    "user": _fact("user"),
    # Remainders come last: those of eight GPUs would fill the first screen.
    "now": lambda row: None if row.kind in REMAINDERS else _size(row),
    "peak": lambda row: None if row.peak is None else as_shown(row.peak),
    "predicted": lambda row: None if row.predicted is None else as_shown(row.predicted),
    "delta": lambda row: row.fraction,
    "type": _fact("type"),
    "sm": _fact("sm_percent"),
    "cpu": _fact("cpu_percent"),
    "host": _fact("host_memory"),
    "time": lambda row: row.minutes,
    "job": _fact("job"),
    "command": _fact("command_or_name"),
}
FROM_THE_SMALLEST = ("pid", "gpu", "user", "type", "command")
_BEGUN = "user begins"  # the form of a user's name that is still being typed


def _process_text(row: ProcessRow, name: str) -> str | None:
    """Return a text of the row's process in lower case; None without a process."""
    return None if row.process is None else str(getattr(row.process, name) or "").lower()


FORMS: dict[str, Callable[[ProcessRow, str], bool]] = {
    "user": lambda row, value: _process_text(row, "user") == value,
    "gpu": lambda row, value: value in (str(row.gpu.index), row.gpu.uuid.lower()),
    "pid": lambda row, value: row.process is not None and str(row.process.pid) == value,
    "preset": lambda row, value: value in (row.preset or "").lower(),
    "cmd": lambda row, value: value in (_process_text(row, "command_or_name") or ""),
}


def conditions(wanted: str) -> list[tuple[str, str]]:
    """Return the words of a filter as form and value: `user:anna` has the form `user`, other words have none.

    A form without a value is left out.
    """
    tests = []
    for word in wanted.lower().split():
        form, colon, value = word.partition(":")
        if not colon or form not in FORMS:
            tests.append(("", word))
        elif value:
            tests.append((form, value))
    return tests


def holds(row: ProcessRow, wanted: list[tuple[str, str]]) -> bool:
    """Return whether a row meets all conditions; words without a form may be in pid, user, command, preset or GPU."""
    text = ""
    for form, value in wanted:
        if form == _BEGUN:
            if row.process is None or not (_process_text(row, "user") or "").startswith(value):
                return False
        elif form:
            if not FORMS[form](row, value):
                return False
        else:
            if not text:
                parts = [row.gpu.name, row.kind, row.preset or ""]
                if row.process is not None:
                    parts += [str(row.process.pid), row.process.user or "", row.process.command_or_name or ""]
                text = " ".join(parts).lower()
            if value not in text:
                return False
    return True


def pick_rows(rows: Sequence[ProcessRow], wanted: list[tuple[str, str]]) -> list[int]:
    """Return the places of the rows that meet every condition; if none does, `user:` may match a beginning."""
    picked = [at for at, row in enumerate(rows) if holds(row, wanted)]
    if picked or not any(form == "user" for form, _ in wanted):
        return picked
    begun = [(_BEGUN if form == "user" else form, value) for form, value in wanted]
    return [at for at, row in enumerate(rows) if holds(row, begun)]


def doubt(wanted: str) -> str:
    """Return what may be wrong with a filter that finds nothing; empty if nothing is."""
    for form, value in conditions(wanted):
        name, colon, asked = value.partition(":")
        if form == "pid" and not value.isdecimal():
            return f"{form}:{value} is invalid: a pid is a number."
        if form == "gpu" and not value.isdecimal() and not value.startswith(("gpu-", "mig-")):
            return f"{form}:{value} is invalid: a GPU is a number or a uuid."
        if not form and colon and name.isalpha() and asked:
            return f"There is no {name}:{nearest(name, FORMS)}; there are {', '.join(f'{known}:' for known in FORMS)}."
    return ""


class RowPredictions(RowsOnDemand):
    """All rows in the order of the listing, with the predictions of those whose process has a preset; each preset is
    estimated once for each GPU.
    """

    __slots__ = ("_asked", "_estimates", "_is_quick", "_presets", "listing")

    def __init__(
        self,
        listing: ProcessRows,
        matched: Mapping[ProcessKey, PresetFile],
        estimates: Callable[[PresetFile, Device], Estimate | None],
        is_quick: Callable[[PresetFile, Device], bool] = lambda _, __: False,
    ) -> None:
        self.listing, self._presets, self._estimates, self._is_quick = listing, matched, estimates, is_quick
        self._asked: dict[tuple[int, str], tuple[int | None, bool]] = {}

    def __len__(self) -> int:
        return len(self.listing)

    def row(self, at: int) -> ProcessRow:
        row = self.listing.row(at)
        preset_file = self._presets.get(row.id) if isinstance(row.id, ProcessKey) else None
        if preset_file is None:
            return row
        asked = (id(preset_file), row.gpu.uuid)  # not its key: two jobs of one preset may have their own values
        if asked not in self._asked:
            device = device_of(row.gpu)
            estimate = self._estimates(preset_file, device)
            known = (None, False) if estimate is None else (estimate.process, self._is_quick(preset_file, device))
            self._asked[asked] = known
        size, quick = self._asked[asked]
        return msgspec.structs.replace(
            row,
            predicted=size,
            fraction=row.peak / size - 1 if size and row.peak is not None else None,
            preset=preset_file.key,
            is_assumed=preset_file.is_assumed,
            is_quick=quick,
        )

    @property
    def matched(self) -> list[ProcessRow]:
        return [self[at] for at in self.listing.places(self._presets)] if self._presets else []


class SortedRows(RowsOnDemand):
    """The rows of `predicted` at some places, in their own order."""

    __slots__ = ("_predicted", "_rows", "_selected", "order", "places")

    def __init__(self, places: "array[int]", predicted: RowPredictions, order: object) -> None:
        self.places, self._predicted, self.order = places, predicted, order
        self._selected: dict[RowId | None, int | None] = {None: None}
        self._rows: dict[int, ProcessRow] = {}

    def __len__(self) -> int:
        return len(self.places)

    def row(self, at: int) -> ProcessRow:
        if at not in self._rows:
            self._rows[at] = self._predicted.row(self.places[at])
        return self._rows[at]

    def ids(self) -> list[RowId]:
        """Return the identity of each row."""
        ids = list(self._predicted.listing.ids())
        return [ids[at] for at in self.places]

    def selected_index(self, wanted: RowId | None) -> int:
        """Return the place of the `wanted` row; else of the first process."""
        if wanted not in self._selected:
            place = next(self._predicted.listing.places((wanted,)), -1)
            self._selected[wanted] = self.places.index(place) if place in self.places else None
        at = self._selected[wanted]
        return next((at for at, row in enumerate(self) if row.kind == "process"), 0) if at is None else at


def arranged(
    predicted: RowPredictions, wanted: str, by: Order, frozen: Mapping[RowId, int] | None, was: SortedRows | None = None
) -> SortedRows:
    """Return the rows that meet every word of `wanted`, sorted `by` a column, and reversed or not.

    Numbers begin with the largest and text with the first of the alphabet, unless reversed. Unknown values come last
    in both directions. Rows with a place in `frozen` keep it, and the others follow. Of many rows with an equal value
    as many as can be keep the line that they had in `was`.
    """
    words, (column, reverse) = conditions(wanted), by
    places: Sequence[int] = pick_rows(predicted, words) if words else range(len(predicted))
    frozen_places: list[int] = []
    if frozen is not None:
        ids = list(predicted.listing.ids())
        frozen_places = sorted((at for at in places if ids[at] in frozen), key=lambda at: frozen[ids[at]])
        places = [at for at in places if ids[at] not in frozen]
    keys: Sequence[Any] = list(predicted.listing.orders() if column == "now" else map(SORT_KEYS[column], predicted))
    order = by if not words and frozen is None and len(places) > MANY else None
    lines = was.places if was and order and (order, len(places)) == (was.order, len(was)) else ()
    return SortedRows(
        array("i", frozen_places) + sorted_places(places, keys, column, lines, reverse=reverse), predicted, order
    )


def sorted_places(
    places: Sequence[int], keys: Sequence[Any], column: SortColumn, lines: Sequence[int] = (), *, reverse: bool = False
) -> "array[int]":
    """Return places in the order of their keys, as `arranged` does, most on the same of their present `lines`."""
    falls = (column not in FROM_THE_SMALLEST) != reverse
    known = array("i", (at for at in lines or places if keys[at] is not None))
    now = [keys[at] for at in known]
    wrong = list(compress(count(), map(ne, now, sorted(now, reverse=falls)))) if lines else range(len(known))
    moved = sorted((known[line] for line in wrong), key=keys.__getitem__, reverse=falls)
    for line, at in zip(wrong, moved, strict=True):
        known[line] = at
    return known + array("i", (at for at in places if keys[at] is None))


# --- groups ----------------------------------------------------------------------------------------------------------

TREE, UNKNOWN_PARENTS = "tree", "parents not known"
BRANCH = "└ "
GROUPINGS: tuple[Grouping, ...] = ("none", "job", "user", "gpu", "tree")
OPEN, CLOSED = "▾", "▸"


def in_tree_order(rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """Return the rows of one tree, each after its parent and with its `depth` below it; otherwise in their order."""
    pids = {row.process.pid for row in rows if row.process is not None}
    below: dict[int | None, list[ProcessRow]] = {}
    for row in rows:
        above = row.process.ancestors.pids if row.process is not None and row.process.ancestors is not None else ()
        below.setdefault(next((pid for pid in above if pid in pids), None), []).append(row)
    ordered: list[ProcessRow] = []

    def take(above: int | None, depth: int) -> None:
        for row in below.pop(above, ()):
            ordered.append(msgspec.structs.replace(row, depth=depth) if depth else row)
            take(row.process.pid if row.process is not None else None, depth + 1)

    take(None, 0)
    return ordered


class RowGroups(RowsOnDemand):
    """Rows in groups, each at the place of its first row. A job or tree of a single process is that process's row."""

    def __init__(
        self, rows: Sequence[ProcessRow], by: Grouping, opened: Collection[RowId], *, largest_first: bool = False
    ) -> None:
        self.rows = rows
        self.places: dict[RowId, int] = {}
        self._rows: list[ProcessRow] = []
        for identity, members in groups_of(rows, by, largest_first=largest_first):
            start, is_open = len(self._rows), identity in opened
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

    def row(self, at: int) -> ProcessRow:
        return self._rows[at]


class GroupChoice:
    __slots__ = ("_opened", "_rows", "by")

    def __init__(self, by: Grouping) -> None:
        self.by: Grouping = by
        self._opened: set[RowId] = set()
        self._rows: RowGroups | None = None

    def take(self, rows: Sequence[ProcessRow], *, largest_first: bool) -> RowGroups | None:
        """Return the rows in their groups; None without grouping."""
        self._rows = None
        if self.by != "none":
            self._rows = RowGroups(rows, self.by, self._opened, largest_first=largest_first)
        return self._rows

    def find(self, wanted: RowId | None, otherwise: RowId) -> tuple[int, ProcessRow] | None:
        """Return the place and row of `wanted`, or else of the other; a closed group stands for its rows. None without
        grouping.
        """
        if self._rows is None:
            return None
        places = self._rows.places
        at = places[wanted] if wanted is not None and wanted in places else places.get(otherwise, 0)
        return at, self._rows[at]

    def next(self) -> None:
        self.by = GROUPINGS[(GROUPINGS.index(self.by) + 1) % len(GROUPINGS)]

    def toggle(self, row: RowId, *, opened: bool | None = None) -> bool:
        """Open or close a group, or bring it to `opened`; False if it is so already, or not a group."""
        groups = self._rows.places if self._rows is not None else {}
        if isinstance(row, ProcessKey) or row not in groups or opened == (row in self._opened):
            return False
        self._opened ^= {row}
        return True


def groups_of(
    rows: Sequence[ProcessRow], by: Grouping, *, largest_first: bool = False
) -> list[tuple[tuple[str, str], list[ProcessRow]]]:
    """Return each group's identity and rows, in the order of the rows or of the memory that the groups hold."""
    groups: dict[tuple[str, str], list[ProcessRow]] = {}
    for row in rows:
        process = row.process
        identity = ("group", "unattributed")
        if by == "gpu":
            identity = ("group", row.gpu.uuid)
        elif process is not None and by == "tree":
            pids = None if process.ancestors is None else (process.pid, *process.ancestors.pids)
            identity = ("group", UNKNOWN_PARENTS) if pids is None else (TREE, str(pids[-1]))
        elif process is not None:
            identity = ("group", process.user or UNKNOWN if by == "user" else job_of(process))
        if by == "job" and process is not None:
            number = 0
            while identity in groups:
                first = groups[identity][0].process
                if first is None or are_together(first, process):
                    break
                number += 1
                identity = (f"group {number}", identity[1])
        groups.setdefault(identity, []).append(row)
    if largest_first:
        return sorted(groups.items(), key=lambda group: -together(group[1])[0])
    return list(groups.items())


def together(rows: Sequence[ProcessRow]) -> tuple[int, int | None]:
    """Return the bytes that rows hold, and their processes' predicted bytes; None unless all have a prediction."""
    predictions = [row.predicted for row in rows if row.process is not None]
    known = [size for size in predictions if size is not None]
    return sum(row.now or 0 for row in rows), sum(known) if known and len(known) == len(predictions) else None


def _heading(identity: tuple[str, str], members: list[ProcessRow], by: Grouping, *, is_open: bool) -> ProcessRow:
    """Return the row above a group: a job or tree by its ranks and command, a user or GPU by its name, and what its
    processes take of the host.
    """
    first = members[0]
    rows = [row for row in members if row.process is not None]
    processes = [row.process for row in members if row.process is not None]
    gpus = sorted({row.gpu.index for row in members})
    count, where = f"{len(rows)} process{'' if len(rows) == 1 else 'es'}", in_ranges(gpus)
    is_short = len(gpus) < 3 or gpus[-1] - gpus[0] == len(gpus) - 1
    memory, predicted = together(members)
    users = {process.user for process in processes}
    if by == "gpu":
        title = printable(first.gpu.name)
    elif first.process is None:
        title = "unattributed"
    elif by == "user":
        title = printable(first.process.user or UNKNOWN)
    elif by == "tree":
        root = next((one for one in processes if one.ancestors is not None), None) if identity[0] == TREE else None
        title = "" if identity[0] == TREE else "parent processes not known"
        if root is not None and root.ancestors is not None:
            title = printable_line(root.ancestors.command if root.ancestors.pids else root.command_or_name or "")
    else:
        title = printable_line(first.process.command_or_name or "")
    if not rows:
        words = f"{title}, GPU {where}"
    elif by in ("job", "tree"):
        words = ((by == "job" and job_words(members)) or count) + ("" if is_short else f" on GPU {where}")
        words += "" if predicted is None else f", {format_gib(predicted)} predicted"
        words += f" · {brief_command(title)}"
    else:
        cpu = sum(process.cpu_percent or 0 for process in processes)
        ram = sum(process.host_memory or 0 for process in processes)
        more = (f", CPU {cpu:.0f} %" if cpu else "") + (f", RAM {format_gib(ram)} GiB" if ram else "")
        words = f"{title}: {count}{'' if is_short else f' on GPU {where}'}{more}"
    return ProcessRow(
        "group",
        identity,
        first.gpu,
        memory,
        predicted=predicted,
        is_assumed=any(row.is_assumed for row in rows),
        is_quick=any(row.is_quick for row in rows),
        note=f"{OPEN if is_open else CLOSED} {words}",
        gpus=where if is_short else f"{len(gpus)} x",
        user=(users.pop() or "") if len(users) == 1 else "",
    )


def in_ranges(numbers: Sequence[int]) -> str:
    """Return numbers in order, three and more consecutive ones as a range: `0-3, 5, 6`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def where_of(rank: Rank) -> str:
    return f"{printable(rank.host)} GPU {', '.join(map(str, rank.gpus))}"


def worst_of(job: RankedJob) -> str:
    """Return the rank to look at: the farthest above its prediction or, without one, the largest."""
    worst = job.worst
    beyond = "" if worst.fraction is None else f", {format_percent(worst.fraction)}"
    return f"{worst.rank} on {where_of(worst)}: {format_gib(worst.peak)} GiB{beyond}"


def job_words(rows: Iterable[ProcessRow]) -> str:
    """Return the heading of one job's rows on one host: ranks, worst rank, imbalance; empty without ranks."""
    processes = ((row, row.process) for row in rows if row.kind == "process" and row.process is not None)
    readings = (rank_reading("", row.gpu, process, row.peak, row.predicted) for row, process in processes)
    jobs = ranked_jobs(filter(None, readings))
    if len(jobs) != 1:
        return ""
    job = jobs[0]
    words = [f"{printable(job.launcher or 'ranks')} {len(job.ranks)}/{job.size}"]
    if job.imbalance is not None and job.imbalance > UNEVEN:
        beyond = "" if job.worst.fraction is None else f" {format_percent(job.worst.fraction)}"
        words += [f"worst rank {job.worst.rank}{beyond}", f"uneven {format_percent(job.imbalance)}"]
    return ", ".join(words)
