"""Snapshots and runs as JSON and CSV. Text is made safe for terminals and spreadsheets, numbers are what JSON knows.

In the CSV of a snapshot, of every GPU the rows `process`, `mig_instances`, `unattributed`, `driver_reserved` and `free`
add up, in `now_bytes`, to its row `device_total`. A process with a preset has one more row for each line of the Ledger
that the prediction or the observation knows. An empty cell is an unknown value, never a zero.
"""

import csv
import io
from collections.abc import Iterable
from datetime import datetime, timezone
from math import isfinite
from typing import Any

import msgspec

from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN
from vramtui.core.estimate.fits import ComparisonRow
from vramtui.core.observation.readings import SCHEMA, process_key
from vramtui.core.observation.snapshot import Snapshot


def clean(value: Any) -> Any:  # noqa: ANN401 - a tree of whatever JSON can hold
    """`value` with every text in it (keys too) made printable, and every float that JSON cannot write as None."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {printable(key): clean(entry) for key, entry in value.items()}
    return [clean(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def json_text(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def count(value: int | None) -> str:
    """A whole number with its thousands apart and a true minus sign."""
    return UNKNOWN if value is None else f"{value:,}".replace("-", "−")


def moment(seconds: float) -> datetime | None:
    """Seconds since the epoch as this machine's local time; None if it is not a possible time."""
    try:
        return datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone()
    except (OverflowError, ValueError, OSError):
        return None


def iso_time(seconds: float | None) -> str:
    """Seconds since the epoch as `2026-01-31 14:05:09 +01:00`."""
    when = None if seconds is None else moment(seconds)
    if when is None:
        return UNKNOWN
    offset = when.strftime("%z")
    return f"{when:%Y-%m-%d %H:%M:%S} {offset[:3]}:{offset[3:5]}"


Document = dict[str, Any]


def ps_document(snapshot: Snapshot, *, detailed: bool = False) -> Document:
    """Everything seen at one moment: bytes are integers, times seconds since the epoch, unknown is None.

    If a value of a GPU or process is None, its `absent` says why. `peak_memory` is the most the process was seen to
    hold since the program began to look, `peak_how` how that was learned, and `peak_interval` the seconds between the
    looks (None if the driver recorded it); `predicted_memory` needs a preset that matches. `detailed` adds
    `comparison` and `estimate` to processes.
    """
    sample = snapshot.sample
    holdings = {holding.key: holding for holding in snapshot.holdings}
    gpus = []
    for gpu in sample.gpus:
        processes = []
        for process in gpu.processes:
            holding = holdings.get(process_key(sample.host.name, gpu, process))
            peak, estimate, comparison = None, None, None
            if holding:
                peak, estimate, comparison = holding.peak, holding.estimate, holding.comparison
            row = msgspec.to_builtins(process)
            row |= {
                "peak_memory": peak.bytes if peak else None,
                "peak_at": peak.at if peak else None,
                "peak_how": peak.how if peak else None,
                "peak_interval": peak.interval if peak else None,
                "preset": holding.preset if holding else None,
                "predicted_memory": estimate.process if estimate else None,
                "verdict": comparison.verdict if comparison else None,
                "settings": holding.settings or None if holding else None,
                "outlook": holding.outlook if holding else (),
                "absent": row.pop("absent"),
            }
            if detailed:
                totals = {name: getattr(estimate, name, None) for name in ("allocated", "reserved", "process")}
                row["comparison"] = msgspec.to_builtins(comparison)
                row["estimate"] = {**msgspec.to_builtins(estimate), **totals} if estimate else None
            processes.append(row)
        memory = msgspec.to_builtins(gpu.memory) | {"unattributed": gpu.unattributed}
        whole = msgspec.to_builtins(msgspec.structs.replace(gpu, processes=()))
        gpus.append(whole | {"memory": memory, "processes": processes})
    host = sample.host
    document: Document = clean(
        {
            "schema": SCHEMA,
            "host": host.name,
            "taken_at": sample.taken_at,
            "source": sample.source,
            "driver_version": host.driver_version,
            "cuda_version": host.cuda_version,
            "cpu_percent": host.cpu_percent,
            "host_memory": {"total": host.memory_total, "available": host.memory_available},
            "summary": snapshot.sentences,
            "users": [
                {"user": user, "processes": number, "used_memory": used} for user, number, used in snapshot.users
            ],
            "gpus": gpus,
            "problems": msgspec.to_builtins(sample.problems),
            "versions": snapshot.versions,
        }
    )
    return document


COLUMNS = (
    "taken_at", "host", "gpu_index", "gpu_uuid", "gpu_name", "pid", "type", "user", "command", "state", "preset",
    "method", "line", "now_bytes", "peak_bytes", "peak_how", "predicted_bytes", "difference_bytes",
    "difference_fraction",
)  # fmt: skip
# A spreadsheet takes a cell that begins so for a formula, and a formula can run programs.
FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")

Cell = str | int | float | None
Cells = dict[str, Cell]


def csv_table(snapshot: Snapshot) -> str:
    """The table with its heading row, comma-separated, quoted as RFC 4180 says, lines ending in a newline."""
    sample = snapshot.sample
    rows: list[Cells] = []
    for gpu in sample.gpus:
        common: Cells = {
            "taken_at": iso_time(sample.taken_at),
            "host": sample.host.name,
            "gpu_index": gpu.index,
            "gpu_uuid": gpu.uuid,
            "gpu_name": gpu.name,
        }
        rows.append({**common, "line": "device_total", "state": gpu.state, "now_bytes": gpu.memory.total})
        lines: dict[str, int | None] = {"mig_instances": gpu.mig_used} if gpu.mig_used is not None else {}
        lines |= {"unattributed": gpu.unattributed, "driver_reserved": gpu.memory.reserved, "free": gpu.memory.free}
        rows += [{**common, "line": line, "now_bytes": size} for line, size in lines.items()]
        for holding in snapshot.holdings:
            if holding.key.gpu_uuid == gpu.uuid:
                process, comparison, peak = holding.process, holding.comparison, holding.peak
                mine: Cells = {
                    **common,
                    "pid": process.pid,
                    "type": process.type,
                    "user": process.user,
                    "command": process.command_or_name,
                    "state": process.state,
                    "preset": holding.preset,
                    "method": comparison.method if comparison else None,
                }
                total: Cells = {"line": "process", "now_bytes": process.used_memory}
                total |= {"peak_bytes": peak.bytes if peak else None, "peak_how": peak.how if peak else None}
                by_line = {row.line: row for row in comparison.rows} if comparison else {}
                if "process" in by_line:
                    total = {**ledger_cells(by_line.pop("process")), **total}
                rows += [{**mine, **total}, *({**mine, **ledger_cells(row)} for row in by_line.values())]
    return csv_text(rows)


def csv_text(rows: Iterable[Cells]) -> str:
    """Rows of COLUMNS as such a table; what a row lacks is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for cells in rows:
        writer.writerow({name: safe_cell(cell) for name, cell in cells.items()})
    return out.getvalue()


def safe_cell(cell: Cell) -> Cell:
    """Numbers as they are; text printable and, where a spreadsheet would take it for a formula, marked as text."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if text.lstrip().startswith(FORMULA_STARTS) else text


def ledger_cells(row: ComparisonRow) -> Cells:
    return {
        "line": row.line,
        "peak_bytes": row.observed,
        "predicted_bytes": row.predicted,
        "difference_bytes": row.difference,
        "difference_fraction": None if row.fraction is None else round(row.fraction, 6),
    }
