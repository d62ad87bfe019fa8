"""A recording as a table: every process of every moment, in CSV and in Parquet, and no cell a formula."""

import csv
from pathlib import Path

import msgspec
import pytest

from tests.records.moments import moment
from vramtui.core.base.errors import UserError
from vramtui.records.export.sanitize import clean
from vramtui.records.export.tables import RECORDING_COLUMNS, write_table

SAMPLES = tuple(msgspec.structs.replace(moment().sample, taken_at=100.0 + i) for i in range(3))
RECORDS = [record for sample in SAMPLES for record in sample.to_records()]


def test_the_columns_are_those_of_the_records() -> None:
    assert list(RECORDING_COLUMNS) == list(RECORDS[0])


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    assert write_table(SAMPLES, path) == len(RECORDS)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["used_memory"] for row in rows] == [
        "" if record["used_memory"] is None else str(record["used_memory"]) for record in RECORDS
    ]
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "@"))]


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "table.parquet"
    assert write_table(SAMPLES, path) == len(RECORDS)
    read = parquet.read_table(path).to_pylist()
    numbers = [name for name, kind in RECORDING_COLUMNS.items() if kind != "string"]
    wanted = clean(RECORDS)  # a figure that is no number is as good as none
    assert [[row[name] for name in numbers] for row in read] == [[row[name] for name in numbers] for row in wanted]


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("mine")
    for name, words in (
        ("table.xlsx", "names no format"),
        ("there.csv", "exists already"),
        ("no/t.csv", "No such file"),
    ):
        with pytest.raises(UserError, match=words):
            write_table(SAMPLES, tmp_path / name)
    assert (tmp_path / "there.csv").read_text() == "mine"
