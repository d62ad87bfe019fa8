"""The lines of the process table: what there is, in which order, and which of them are asked for."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vramtui.app.state import Row, RowId, SortColumn
from vramtui.app.words import why
from vramtui.core.devices import Device
from vramtui.core.estimate import Estimate
from vramtui.core.history import History
from vramtui.core.preset import PresetFile
from vramtui.core.readings import Gpu, Process, ProcessKey, Sample
from vramtui.core.snapshot import device_of
from vramtui.core.units import MIB, format_bytes

KEEP_EXITED_SHOWN = 60.0
MOST_EXITED_SHOWN = 50
# A remainder this small shares the driver's line: four rows of 0.0 GiB would tell nobody anything.
SMALL = 32 * MIB
# On the same GPU: processes first, then what nobody owns, what the driver keeps, and those that are gone.
_ORDER = {"process": 0, "instances": 1, "note": 2, "unattributed": 3, "reserved": 4, "exited": 5}

Estimates = Callable[[PresetFile, Device], Estimate | None]


def all_rows(sample: Sample, history: History, answered: Mapping[str, tuple[float, Gpu]]) -> list[Row]:
    """Every row of the table, GPU by GPU, so that the `now` of a GPU's rows and its free bytes add up to its total.

    A GPU that does not answer has the rows of its last answer, with their age; `answered` holds that by uuid.
    """
    rows: list[Row] = []
    host = sample.host.name
    for told in sample.gpus:
        gpu, age = _last(sample, told, answered)
        here = history.here(host, gpu.uuid)
        for process in gpu.processes:
            track = here.get(process.pid)
            if track is not None:
                peak = track.peak.bytes if track.peak is not None else None
                rows.append(Row("process", track.key, gpu, process.used_memory, peak, process, age=age))
        rows.extend(_remainders(gpu, age))
    rows.extend(_exited(sample, history))
    return rows


def _last(sample: Sample, gpu: Gpu, answered: Mapping[str, tuple[float, Gpu]]) -> tuple[Gpu, float | None]:
    """The GPU as it answered last, in its present state, and how long ago that was; None where it answers."""
    if gpu.state == "ok" or gpu.uuid not in answered:
        return gpu, None
    at, last = answered[gpu.uuid]
    return msgspec.structs.replace(last, state=gpu.state, reason=gpu.reason), sample.taken_at - at


def _remainders(gpu: Gpu, age: float | None) -> list[Row]:
    rows = []
    if (gpu.state == "ok" or age is not None) and "processes" in gpu.absent:
        rows.append(
            Row("note", ("note", gpu.uuid), gpu, None, note=f"its processes are not told: {why(gpu, 'processes')}")
        )
    elif not gpu.processes_trusted:
        rows.append(Row("note", ("note", gpu.uuid), gpu, None, note="this driver scrambles its process list"))
    if gpu.mig_used:
        rows.append(Row("instances", ("instances", gpu.uuid), gpu, gpu.mig_used, age=age))
    unattributed, reserved = gpu.unattributed or 0, gpu.memory.reserved or 0
    if reserved and abs(unattributed) < SMALL:
        also = f", and {format_bytes(unattributed)} unattributed" if unattributed else ""
        rows.append(Row("reserved", ("reserved", gpu.uuid), gpu, reserved + unattributed, note=also, age=age))
        return rows
    if unattributed:
        rows.append(Row("unattributed", ("unattributed", gpu.uuid), gpu, unattributed, age=age))
    if reserved:
        rows.append(Row("reserved", ("reserved", gpu.uuid), gpu, reserved, age=age))
    return rows


def _exited(sample: Sample, history: History) -> list[Row]:
    gpus = {gpu.uuid: gpu for gpu in sample.gpus}
    rows: list[Row] = []
    for track in history.exited(sample.taken_at - KEEP_EXITED_SHOWN):
        gpu = gpus.get(track.key.gpu_uuid)
        if gpu is not None and track.key.host == sample.host.name and len(rows) < MOST_EXITED_SHOWN:
            peak = track.peak.bytes if track.peak is not None else None
            rows.append(Row("exited", track.key, gpu, None, peak, track.process, gone_at=track.gone_at))
    return rows


def predicted_rows(rows: list[Row], matched: Mapping[ProcessKey, PresetFile], estimates: Estimates) -> list[Row]:
    """The rows with the predictions of those whose process runs a preset; each preset is asked for once a GPU."""
    if not matched:
        return rows
    made: dict[tuple[str, str], int | None] = {}

    def predict(found: PresetFile, gpu: Gpu) -> int | None:
        at = (found.key, gpu.uuid)
        if at not in made:
            estimate = estimates(found, device_of(gpu))
            made[at] = estimate.process if estimate is not None else None
        return made[at]

    return [_predicted(row, matched, predict) if row.process is not None else row for row in rows]


def _predicted(
    row: Row, matched: Mapping[ProcessKey, PresetFile], predict: Callable[[PresetFile, Gpu], int | None]
) -> Row:
    found = matched.get(row.id) if isinstance(row.id, ProcessKey) else None
    if found is None:
        return row
    predicted = predict(found, row.gpu)
    fraction = row.peak / predicted - 1 if predicted and row.peak is not None else None
    return msgspec.structs.replace(row, predicted=predicted, fraction=fraction, preset=found.key)


def chosen_row(rows: list[Row], chosen: RowId | None) -> Row | None:
    """The row chosen by hand; else the first one with a prediction, else the first process, else the first."""
    if chosen is not None:
        for row in rows:
            if row.id == chosen:
                return row
    wanted = (row for row in rows if row.preset is not None)
    return next(wanted, None) or next((row for row in rows if row.kind == "process"), rows[0] if rows else None)


def filtered(rows: list[Row], wanted: str) -> list[Row]:
    """The rows in which every word of `wanted` occurs: in pid, user, command, preset, GPU name or `gpu:INDEX`."""
    words = wanted.lower().split()
    if not words:
        return rows
    return [row for row in rows if _holds(row, words)]


def _holds(row: Row, words: list[str]) -> bool:
    text = _searched(row)
    return all(word in text for word in words)


def _searched(row: Row) -> str:
    parts = [f"gpu:{row.gpu.index} ", row.gpu.name, row.kind, row.preset or ""]
    if row.process is not None:
        parts += [str(row.process.pid), row.process.user or "", row.process.command or row.process.name or ""]
    return " ".join(parts).lower()


def in_order(rows: list[Row], column: SortColumn, order: Mapping[RowId, int], *, reverse: bool) -> list[Row]:
    """The rows sorted by `column`; those in `order` keep that order, and others follow them.

    Numbers begin with the largest and text with the first of the alphabet, unless `reverse`. What is not known
    comes last in both directions.
    """
    key = _KEYS[column]
    known: list[tuple[Any, Row]] = []
    unknown: list[tuple[Any, Row]] = []
    for row in rows:
        value = key(row)
        (unknown if value is None else known).append((value, row))
    downward = column not in ("pid", "gpu", "user", "command")
    known.sort(key=_first, reverse=downward != reverse)
    result = [row for _, row in known] + [row for _, row in unknown]
    if order:
        last = len(order)
        result.sort(key=lambda row: order.get(row.id, last))
    return result


def _first(pair: tuple[Any, Row]) -> Any:  # noqa: ANN401 - whatever the column sorts by
    return pair[0]


def _by_gpu(row: Row) -> tuple[int, str, int, int]:
    return (row.gpu.index, row.gpu.mig_parent or "", _ORDER[row.kind], -(row.now or 0))


def _pid(row: Row) -> int | None:
    return row.process.pid if row.process is not None else None


def _text_of(name: str) -> Callable[[Row], str | None]:
    def text(row: Row) -> str | None:
        process: Process | None = row.process
        return getattr(process, name) if process is not None else None

    return text


_KEYS: dict[SortColumn, Callable[[Row], Any]] = {
    "pid": _pid,
    "gpu": _by_gpu,
    "user": _text_of("user"),
    "now": lambda row: row.now,
    "peak": lambda row: row.peak,
    "predicted": lambda row: row.predicted,
    "delta": lambda row: row.fraction,
    "command": lambda row: (row.process.command or row.process.name) if row.process is not None else None,
}
