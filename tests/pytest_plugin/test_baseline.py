"""Accepted peaks: what a file keeps of a trace, what is more than it lets be, and `vramtui trace --baseline`."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from vramtui.api.baseline import BaselineEntry, entry_of, over_baseline, read_baseline, tolerance_of
from vramtui.cli.trace.baseline import compared
from vramtui.core.base.errors import UserError
from vramtui.estimators.traced.process.results import TraceResult


def result(root: Path, weights: int) -> TraceResult:
    held = {"bytes": weights // 2, "category": "weights", "operator": "aten::empty", "module": "", "phase": "build"}
    told: dict[str, Any] = {
        "torch": "2.13.0",
        "device": "H100",
        "capability": [9, 0],
        "total_memory": 10_000,
        "timeline": [],
        "peak_allocated": weights,
        "peak_reserved": weights + 1,
        "peak_phase": "build",
        "peak_step": 0,
        "process": weights + 2,
        "context": 1,
        "peak_categories": {"weights": weights, "inputs": 0},
        "largest": [{**held, "line": f"{root}/a.py:3"}, {**held, "line": f"{root}/a.py:3"}],
        "warnings": [],
        "series": [],
        "events": 2,
    }
    return msgspec.convert(told, TraceResult)


def entry(root: Path, weights: int) -> BaselineEntry:
    return entry_of(result(root, weights), root)


def test_what_is_kept(tmp_path: Path) -> None:
    made = entry(tmp_path, 1000)
    assert made.lines == {"a.py:3 (aten::empty)": 1000}
    assert made.parts == {"weights": 1000}
    assert (made.total("allocated"), made.total("reserved"), made.total("process")) == (1000, 1001, 1002)


@pytest.mark.parametrize(
    ("now", "tolerance", "passes"),
    [(1000, 0, True), (1001, 0, False), (1020, 0.02, True), (1021, 0.02, False), (1, 0, True)],
)
def test_what_passes(tmp_path: Path, now: int, tolerance: float, *, passes: bool) -> None:
    wrong = over_baseline(entry(tmp_path, 1000), entry(tmp_path, now), of="allocated", tolerance=tolerance)
    assert (wrong is None) == passes
    assert passes or "weights: 1000 B" in str(wrong)


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.02", 0.02), (" 0% ", 0), ("150%", 1.5)])
def test_a_share(text: str, share: float) -> None:
    assert tolerance_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "two", "-1%", "nan", "inf%"])
def test_no_share(text: str) -> None:
    with pytest.raises(UserError, match="write it as 2%"):
        tolerance_of(text)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, table = tmp_path / "peaks.json", tmp_path / "table.md"

    def run(weights: int, *, update: bool = False) -> str | None:
        return compared("train.py", result(tmp_path, weights), path, "2%", update=update, markdown=table)

    with pytest.raises(UserError, match="--update-baseline writes it"):
        run(1000)
    assert run(1000, update=True) is None
    assert run(1000) is None
    assert "weights: 1000 B" in str(run(1100))
    assert "| `train.py` ▲ |" in table.read_text()
    assert list(read_baseline(path)) == ["train.py"]
    path.write_text("[]")
    with pytest.raises(UserError, match="is no baseline"):
        run(1000)
