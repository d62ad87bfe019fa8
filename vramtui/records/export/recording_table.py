"""A recording as one table: a row for each process on each GPU at each moment, bytes as whole numbers.

Its columns are those of `Sample.to_records`. Parquet needs pyarrow, which the extra `parquet` brings.
"""

import csv
import importlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vramtui.core.base.errors import UserError, install_hint
from vramtui.core.observation.readings import Sample
from vramtui.presets.toml.whole_files import give_name
from vramtui.records.export.csv_table import safe_cell
from vramtui.records.export.sanitize import clean

# What each column holds: Parquet's types, and which of CSV's cells are text.
COLUMNS = {
    "taken_at": "float64",
    "host": "string",
    "gpu_index": "int64",
    "gpu_uuid": "string",
    "gpu_name": "string",
    "gpu_total": "int64",
    "gpu_used": "int64",
    "gpu_utilization": "int64",
    "pid": "int64",
    "type": "string",
    "user": "string",
    "name": "string",
    "command": "string",
    "started_at": "float64",
    "used_memory": "int64",
    "peak_memory": "int64",
    "cpu_percent": "float64",
}
BATCH = 1000  # samples whose rows are held at once


def write_table(samples: Iterable[Sample], path: Path) -> int:
    """Write a new file, whose name says which format: `.csv` or `.parquet`. Answers the number of rows.

    Raises:
        UserError: the name says neither, the file is there already or cannot be written, or pyarrow is missing.
    """
    writers = {".csv": _write_csv, ".parquet": _write_parquet}
    if path.suffix not in writers:
        raise UserError(f"{path} names no format: let it end in .csv or .parquet")
    if path.exists():
        raise UserError(f"{path} exists already; give another name")
    beside = path.with_name(f".{path.name[:100]}.{os.getpid()}.tmp")
    try:
        rows = writers[path.suffix](samples, beside)
        give_name(beside, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
    return rows


def _write_csv(samples: Iterable[Sample], path: Path) -> int:
    rows = 0
    with path.open("x", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for sample in samples:
            records: list[dict[str, Any]] = sample.to_records()
            for record in records:
                table.writerow([safe_cell(record[name]) for name in COLUMNS])
                rows += 1
    return rows


def _write_parquet(samples: Iterable[Sample], path: Path) -> int:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError(f"Parquet needs pyarrow: {install_hint('parquet')}") from None
    schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in COLUMNS.items()])
    rows = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as file:
        for records in _batches(samples):
            file.write_table(arrow.Table.from_pylist(records, schema=schema))
            rows += len(records)
    return rows


def _batches(samples: Iterable[Sample]) -> Iterator[list[dict[str, Any]]]:
    held: list[dict[str, Any]] = []
    for number, sample in enumerate(samples, 1):
        held += clean(sample.to_records())
        if number % BATCH == 0:
            yield held
            held = []
    if held:
        yield held
