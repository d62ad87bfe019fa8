"""A snapshot as a table for spreadsheets: one row for each amount of memory, so that it can be pivoted.

Of every GPU the snapshot's rows `process`, `mig_instances`, `unattributed`, `driver_reserved` and `free` add up, in
`now_bytes`, to its row `device_total`. A process with a preset has one more row for each line of the Ledger that the
prediction or the observation knows. An empty cell is an unknown value, never a zero.
"""

import csv
import io
from collections.abc import Iterable, Iterator

from vramtui.core.base.text import printable
from vramtui.core.estimate.comparison import ComparisonRow
from vramtui.core.observation.readings import Gpu
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.sanitize import iso_time

COLUMNS = (
    "taken_at",
    "host",
    "gpu_index",
    "gpu_uuid",
    "gpu_name",
    "pid",
    "type",
    "user",
    "command",
    "state",
    "preset",
    "method",
    "line",
    "now_bytes",
    "peak_bytes",
    "peak_how",
    "predicted_bytes",
    "difference_bytes",
    "difference_fraction",
)
# A spreadsheet takes a cell that begins so for a formula, and a formula can run programs.
FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")

Cell = str | int | float | None
Cells = dict[str, Cell]


def csv_table(snapshot: Snapshot) -> str:
    """The table with its heading row, comma-separated, quoted as RFC 4180 says, lines ending in a newline."""
    return csv_text(_rows(snapshot))


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


def _rows(snapshot: Snapshot) -> Iterator[Cells]:
    sample = snapshot.sample
    holdings: dict[str, list[Holding]] = {}
    for holding in snapshot.holdings:
        holdings.setdefault(holding.key.gpu_uuid, []).append(holding)
    for gpu in sample.gpus:
        common: Cells = {
            "taken_at": iso_time(sample.taken_at),
            "host": sample.host.name,
            "gpu_index": gpu.index,
            "gpu_uuid": gpu.uuid,
            "gpu_name": gpu.name,
        }
        for cells in _gpu_rows(gpu):
            yield {**common, **cells}
        for holding in holdings.get(gpu.uuid, ()):
            for cells in _process_rows(holding):
                yield {**common, **cells}


def _gpu_rows(gpu: Gpu) -> Iterator[Cells]:
    memory = gpu.memory
    yield {"line": "device_total", "state": gpu.state, "now_bytes": memory.total}
    if gpu.mig_used is not None:
        yield {"line": "mig_instances", "now_bytes": gpu.mig_used}
    yield {"line": "unattributed", "now_bytes": gpu.unattributed}
    yield {"line": "driver_reserved", "now_bytes": memory.reserved}
    yield {"line": "free", "now_bytes": memory.free}


def _process_rows(holding: Holding) -> Iterator[Cells]:
    process, comparison = holding.process, holding.comparison
    common: Cells = {
        "pid": process.pid,
        "type": process.type,
        "user": process.user,
        "command": process.command_or_name,
        "state": process.state,
        "preset": holding.preset,
        "method": comparison.method if comparison else None,
    }
    peak = holding.peak.bytes if holding.peak else None
    how = holding.peak.how if holding.peak else None
    total: Cells = {"line": "process", "now_bytes": process.used_memory, "peak_bytes": peak, "peak_how": how}
    rows = {row.line: row for row in comparison.rows} if comparison else {}
    if "process" in rows:
        total = {**ledger_cells(rows.pop("process")), **total}
    yield {**common, **total}
    for row in rows.values():
        yield {**common, **ledger_cells(row)}


def ledger_cells(row: ComparisonRow) -> Cells:
    """One line of a comparison."""
    return {
        "line": row.line,
        "peak_bytes": row.observed,
        "predicted_bytes": row.predicted,
        "difference_bytes": row.difference,
        "difference_fraction": None if row.fraction is None else round(row.fraction, 6),
    }
