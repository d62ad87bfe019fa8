"""A snapshot as a table for spreadsheets: one row for each amount of memory, so that it can be pivoted.

Of every GPU the snapshot's rows `process`, `mig_instances`, `unattributed`, `driver_reserved` and `free` add up, in
`now_bytes`, to its row `device_total`. A process with a preset has one more row for each line of the Ledger that the
prediction or the observation knows. An empty cell is an unknown value, never a zero.
"""

import csv
import io
from collections.abc import Iterable, Iterator

from vramtui.core.base.text import printable
from vramtui.core.estimate.fits import ComparisonRow
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.sanitize import iso_time

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
        lines |= {
            "unattributed": gpu.unattributed,
            "driver_reserved": gpu.memory.reserved,
            "free": gpu.memory.free,
        }
        rows += [{**common, "line": line, "now_bytes": size} for line, size in lines.items()]
        for holding in snapshot.holdings:
            if holding.key.gpu_uuid == gpu.uuid:
                rows += [{**common, **cells} for cells in _process_rows(holding)]
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
