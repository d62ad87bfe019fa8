"""The lines of the process table: what each is made of, and those of a host: its processes, what else holds memory,
what has gone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from vramtui.app.state.view import HeldTotals, ProcessRow, RowId, SortColumn
from vramtui.core.base.units import GIB, MIB, format_bytes, narrow_digits
from vramtui.core.observation.attribution import causes, overlap
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Absence, Gpu, Host, Process, Reading, Sample, instance_names
from vramtui.core.observation.track import Track

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
# A remainder this small shares the driver's line: four rows of 0.0 GiB would tell nobody anything.
SMALL = 32 * MIB
# What nobody accounts for has a row of its own from here on; less of it is a CUDA context's rounding or two.
WORTH_A_ROW = 256 * MIB
# A place is left at that much of the last digit that is shown.
PLAY = 0.75
# On the same GPU: processes first, then what nobody owns, what the driver keeps, and those that are gone.
REMAINDERS = frozenset({"instances", "note", "unattributed", "reserved"})
KIND_ORDER = {"process": 0, "instances": 1, "note": 2, "unattributed": 3, "reserved": 4, "exited": 5}


def process_row(
    gpu: Gpu, process: Process, track: Track, age: float | None, now: float, *, order: float | None
) -> ProcessRow:
    """The row of a process.

    Args:
        gpu: that it is on.
        process: as it was read.
        track: its memory over time.
        age: seconds since the GPU answered; None where it does.
        now: seconds since the epoch.
        order: GiB by which its place was found the last time; None where it is new.
    """
    peak, started, size = track.peak, process.started_at, process.used_memory
    return ProcessRow(
        "process",
        track.key,
        gpu,
        size,
        None if peak is None else peak.bytes,
        process,
        age=age,
        minutes=None if started is None else max(0, int(now - started) // 60),
        learned=peak,
        fast_since=None if track.sampled_fast is None else track.close_since,
        fast_interval=track.fast_interval,
        order=None if size is None else steady_size(size, order),
    )


def last_answer(sample: Sample, gpu: Gpu, answered: Mapping[str, tuple[float, Gpu]]) -> tuple[Gpu, float | None]:
    """The GPU as it answered last, in its present state, and how long ago that was; None where it answers."""
    if gpu.state == "ok" or gpu.uuid not in answered:
        return gpu, None
    at, last = answered[gpu.uuid]
    return msgspec.structs.replace(last, state=gpu.state, reason=gpu.reason), sample.taken_at - at


def remainders(gpu: Gpu, age: float | None, host: Host | None = None, grown: int | None = None) -> list[ProcessRow]:
    """What else holds memory of a GPU, or keeps its processes from being told.

    Args:
        gpu: as it was read.
        age: seconds since it answered; None where it does.
        host: the machine it is in, if known.
        grown: bytes by which its processes grew since the look before, if known.
    """
    rows = []
    if (gpu.state == "ok" or age is not None) and "processes" in gpu.absent:
        rows.append(
            ProcessRow("note", ("note", gpu.uuid), gpu, None, note=f"process list unavailable: {why(gpu, 'processes')}")
        )
    elif not gpu.processes_trusted:
        rows.append(ProcessRow("note", ("note", gpu.uuid), gpu, None, note="process list unreliable with this driver"))
    if gpu.mig_used:
        rows.append(ProcessRow("instances", ("instances", gpu.uuid), gpu, gpu.mig_used, age=age))
    unattributed, reserved = gpu.unattributed or 0, gpu.memory.reserved or 0
    if reserved and abs(unattributed) < SMALL:
        also = f", and {format_bytes(unattributed)} unattributed" if unattributed else ""
        rows.append(ProcessRow("reserved", ("reserved", gpu.uuid), gpu, reserved + unattributed, note=also, age=age))
        return rows
    if unattributed:
        known = ", ".join(causes(gpu, host)) if unattributed > 0 else overlap(gpu, grown)
        rows.append(ProcessRow("unattributed", ("unattributed", gpu.uuid), gpu, unattributed, note=known, age=age))
    if reserved:
        rows.append(ProcessRow("reserved", ("reserved", gpu.uuid), gpu, reserved, age=age))
    return rows


def rare_columns(sample: Sample, matched: Sequence[ProcessRow], known: frozenset[SortColumn]) -> frozenset[SortColumn]:
    """The columns of which a process has a value and others may have none; those that are `known` stay.

    Args:
        sample: what is shown.
        matched: the rows of it whose process runs a preset.
        known: what this gave the last time.
    """
    columns: set[SortColumn] = set(known)
    if any(row.predicted is not None for row in matched):
        columns.add("predicted")
    if not {"sm", "job"} <= columns:
        for gpu in sample.gpus:
            columns |= {"sm"} if any(process.sm_percent is not None for process in gpu.processes) else set()
            columns |= {"job"} if any(process.job for process in gpu.processes) else set()
    return frozenset(columns)


def worth_a_row(row: ProcessRow) -> bool:
    """Whether what else a GPU holds is shown as a row. What the driver keeps is in every GPU's bar already, and what
    MIG instances hold stands in the instances' own rows.
    """
    return row.kind == "note" or (row.kind == "unattributed" and abs(row.now or 0) >= WORTH_A_ROW)


def exited_rows(sample: Sample, history: History) -> list[ProcessRow]:
    """The processes that have gone lately, the latest first."""
    gpus = {gpu.uuid: gpu for gpu in sample.gpus}
    rows: list[ProcessRow] = []
    for track in history.exited(sample.taken_at - KEEP_EXITED_SHOWN):
        gpu = gpus.get(track.key.gpu_uuid)
        if gpu is not None and track.key.host == sample.host.name and len(rows) < MOST_EXITED_SHOWN:
            peak = track.peak.bytes if track.peak is not None else None
            rows.append(
                ProcessRow(
                    "exited", track.key, gpu, None, peak, track.process, gone_at=track.gone_at, learned=track.peak
                )
            )
    return rows


def as_shown(count: int) -> float:
    """GiB as sizes are shown: rows that show the same size keep their order while their bytes change."""
    return round(count / GIB, narrow_digits(count))


def steady_size(count: int, before: float | None) -> float:
    """GiB by which a row's place is found: as it is shown, but for one that is hardly past what the place went by
    `before`. Of many processes some always go to and fro between two sizes, and each move shifts the rows between.

    Rounding moves on at half of the last digit; a place does at three quarters.
    """
    shown = as_shown(count)
    if before is None or shown == before:
        return shown
    digits = max(narrow_digits(count), narrow_digits(round(before * GIB)))  # a step of the smaller of both
    return before if abs(count / GIB - before) < PLAY * 10.0**-digits else shown


def _display_count(count: int | None) -> float | None:
    return None if count is None else as_shown(count)


def _size(row: ProcessRow) -> float | None:
    return _display_count(row.now) if row.order is None else row.order


def _by_gpu(row: ProcessRow) -> tuple[int, str, int, float]:
    return (row.gpu.index, row.gpu.mig_parent or "", KIND_ORDER[row.kind], -(_size(row) or 0))


def _pid(row: ProcessRow) -> int | None:
    return row.process.pid if row.process is not None else None


def _fact(name: str) -> Callable[[ProcessRow], Any]:
    def fact(row: ProcessRow) -> Any:  # noqa: ANN401 - text or a number, by the field
        process: Process | None = row.process
        return getattr(process, name) if process is not None else None

    return fact


SORT_KEYS: dict[SortColumn, Callable[[ProcessRow], Any]] = {
    "pid": _pid,
    "gpu": _by_gpu,
    "user": _fact("user"),
    # What belongs to no process comes behind all that do: of eight GPUs it would fill the first screen.
    "now": lambda row: None if row.kind in REMAINDERS else _size(row),
    "peak": lambda row: _display_count(row.peak),
    "predicted": lambda row: _display_count(row.predicted),
    "delta": lambda row: row.fraction,
    "type": _fact("type"),
    "sm": _fact("sm_percent"),
    "cpu": _fact("cpu_percent"),
    "host": _fact("host_memory"),
    "time": lambda row: row.minutes,
    "job": _fact("job"),
    "command": lambda row: row.process.command_or_name if row.process is not None else None,
}


def why(reading: Reading, metric: str) -> str:
    """Why `metric` is None in `reading`."""
    absence = reading.absent.get(metric)
    return WHY[absence] if absence is not None else "not known"


class ProcessRows(list[ProcessRow]):
    """Every row in the order of the sample: GPU by GPU, then the processes that have gone. The `now` of a GPU's rows,
    what is folded into `totals` and its free bytes add up to its total. A GPU that does not answer has the rows of its
    last answer, with their age.

    Args:
        sample: what is shown.
        history: what was seen until then.
        answered: by uuid, when each GPU answered last and what it said.
        before: GiB by which places of rows were found the last time, by the rows' ids.
        whole: nothing is folded: what drivers keep and small remainders have rows, too.

    Attributes:
        totals: what stands below the rows.
        orders: GiB by which the places of these rows are found.
    """

    def __init__(
        self,
        sample: Sample,
        history: History,
        answered: Mapping[str, tuple[float, Gpu]],
        before: Mapping[RowId, float] | None = None,
        *,
        whole: bool = False,
    ) -> None:
        super().__init__()
        places = before or {}
        folded: list[ProcessRow] = []
        users: dict[str | None, int] = {}
        alike = len({gpu.uuid for gpu in sample.gpus}) < len(sample.gpus)  # as a recording may say, or a broken driver
        for reading in sample.gpus:
            gpu, age = last_answer(sample, reading, answered)
            tracks = history.here(sample.host.name, gpu.uuid)
            processes: Sequence[Process] = gpu.processes
            if alike or len(tracks) != len(processes) or "processes" in gpu.absent:
                processes = [process for process in processes if process.pid in tracks]
            for process in processes:
                track = tracks[process.pid]
                self.append(process_row(gpu, process, track, age, sample.taken_at, order=places.get(track.key)))
                if process.used_memory:
                    users[process.user] = users.get(process.user, 0) + process.used_memory
            grown = history.grown(sample.host.name, gpu.uuid) if (gpu.unattributed or 0) < 0 else None
            rest = remainders(gpu, age, sample.host, grown)
            folded += [] if whole else rest
            self += [row for row in rest if whole or worth_a_row(row)]
        self += exited_rows(sample, history)
        names = instance_names(sample.gpus)
        if names:
            self[:] = [msgspec.structs.replace(row, gpus=names.get(row.gpu.uuid, "")) for row in self]
        self.totals = _totals(users, folded)
        self.orders = {row.id: row.order for row in self if row.order is not None}

    def has(self, wanted: RowId) -> bool:
        """Whether there is such a row."""
        return any(row.id == wanted for row in self)


def _totals(users: Mapping[str | None, int], folded: Sequence[ProcessRow]) -> HeldTotals:
    driver = sum(row.gpu.memory.reserved or 0 for row in folded if row.kind == "reserved")
    return HeldTotals(
        of_processes=sum(users.values()),
        users=tuple(sorted(((user or "", size) for user, size in users.items()), key=lambda one: -one[1])),
        driver=driver,
        unattributed=sum(row.now or 0 for row in folded if row.kind != "instances") - driver,
    )
