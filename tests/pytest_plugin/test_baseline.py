"""Accepted peaks: what a file keeps of a trace, what is more than it lets be, and `vramtui dry-run --baseline`."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from vramtui.api.baseline import BaselineEntry, entry_of, over_baseline, read_baseline, tolerance_of, write_baseline
from vramtui.cli.common.exit_codes import BAD_INPUT, NO, fail
from vramtui.cli.dry_run.baseline import baseline_check
from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.dryrun.result import DryRun


def result(root: Path, weights: int, line: int = 3) -> DryRun:
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
        "largest": [{**held, "line": f"{root}/a.py:{line}"}] * 2,
        "warnings": [],
        "series": [],
        "events": 2,
    }
    return msgspec.convert(told, DryRun)


def entry(root: Path, weights: int) -> BaselineEntry:
    return entry_of(result(root, weights), root)


def test_what_is_kept(tmp_path: Path) -> None:
    made = entry(tmp_path, 1000)
    assert made.lines == {"a.py (aten::empty)": 1000}
    assert made.parts == {"weights": 1000}
    assert (made.total("allocated"), made.total("reserved"), made.total("process")) == (1000, 1001, 1002)


def test_lines_are_named_by_their_function_and_torch_once(tmp_path: Path) -> None:
    """A comment at the head of a file, or another build of the same torch, changes nothing in it."""
    code = "class Net:\n    def forward(self):\n        return lambda: 1\n"
    here, moved = tmp_path / "here", tmp_path / "moved"
    for folder, text in ((here, code), (moved, f"# a comment\n{code}")):
        folder.mkdir()
        (folder / "a.py").write_text(text)
    made = entry(here, 1000)
    assert made.lines == {"a.py Net.forward (aten::empty)": 1000}
    later = msgspec.structs.replace(result(moved, 1000, line=4), torch="2.13.0+cu130")
    kept = entry_of(later, moved)
    assert msgspec.structs.replace(kept, at=made.at) == made
    more = msgspec.structs.replace(kept, allocated=2000, lines=dict.fromkeys(kept.lines, 2000))
    assert "a.py:4 Net.forward (aten::empty): 1000 B" in str(over_baseline(made, more, of="allocated", tolerance=0))
    path = tmp_path / "peaks.json"
    write_baseline(path, {"a": made, "b": made, "c": msgspec.structs.replace(made, torch="2.14.0")})
    assert path.read_text().count('"torch"') == 2
    assert "a.py:" not in path.read_text()
    assert [one.torch for one in read_baseline(path).values()] == ["2.13.0", "2.13.0", "2.14.0"]


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
        check = baseline_check("train.py", path, "2%", update=update, markdown=table)
        assert check is not None
        return check(result(tmp_path, weights))

    with pytest.raises(UserError, match="--update-baseline writes it"):
        run(1000)
    assert run(1000, update=True) is None
    assert run(1000) is None
    assert "weights: 1000 B" in str(run(1100))
    assert "| `train.py` ▲ |" in table.read_text()
    assert list(read_baseline(path)) == ["train.py"]
    path.write_text("[]")
    with pytest.raises(UserError, match="is no baseline"):
        baseline_check("train.py", path, "2%")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--fail-over", "2%"), "--fail-over goes with --baseline FILE"),
        (("--update-baseline",), "--update-baseline goes with --baseline FILE"),
        (("--baseline", "p.json", "--fail-over", "2"), "write 2% for that many hundredths"),
    ],
)
@pytest.mark.torch
def test_a_mistake_is_told_before_anything_runs(
    options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script does not even exist."""
    with pytest.raises(SystemExit) as ended:
        program(["dry-run"])(["dry-run", *options, "train.py"])
    assert ended.value.code == BAD_INPUT
    assert sentence in capsys.readouterr().err


def test_what_grew_stands_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail(NO, str(over_baseline(entry(Path(), 1000), entry(Path(), 2000), of="allocated", tolerance=0)))
    assert len(capsys.readouterr().err.splitlines()) == 3
