import csv
import json
from pathlib import Path

import msgspec
import pytest

from tests.commands import invoke
from tests.examples import a_run
from tests.records.test_html import Page
from vramtui.core.estimate.devices import card
from vramtui.core.runs.run import Run
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets import PresetLibrary
from vramtui.records.run_history import FILE, RunHistory

GIB = 1 << 30
HOSTILE = "train.py <script>alert(1)</script> \x1b[2J | `id` =1+1"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunHistory:
    monkeypatch.setenv("VRAMTUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))
    return RunHistory(tmp_path / "data" / FILE)


def run() -> Run:
    workload = PresetLibrary().get("gpt2-124m").preset.workload
    estimate = ANALYTIC.estimate(workload, card("H200"))
    return a_run(
        source="watched",
        command=HOSTILE,
        started_at=1.7e9,
        ended_at=1.7e9 + 90,
        ending="exited",
        run_kind="train",
        workload=msgspec.to_builtins(workload),
        peak_phase="forward",
        predicted=estimate.ledger,
        times=(0.0, 30.0, 60.0),
        values=(GIB, 19 * GIB, 12 * GIB),
        versions={"driver": "580.1"},
    )


def export(path: Path, run: int = 1) -> str:
    done = invoke("history", str(run), "--export", str(path))
    assert (done.exit_code, done.output) == (0, "")
    return path.read_text(encoding="utf-8")


def test_every_format(kept: RunHistory, tmp_path: Path) -> None:
    kept.keep(run())
    texts = [export(tmp_path / f"run.{kind}") for kind in ("json", "csv", "md", "html")]
    assert not any("\x1b" in text for text in texts)
    assert not any("<script" in text for text in texts[2:])
    document = json.loads(texts[0])
    assert (document["schema"], document["id"], document["observed"]["process"]) == (1, 1, 19 * GIB)
    assert (document["times"], document["values"][1]) == ([0.0, 30.0, 60.0], 19 * GIB)
    rows = {row["line"]: row for row in csv.DictReader(texts[1].splitlines())}
    assert int(rows["process"]["peak_bytes"]) == 19 * GIB
    assert int(rows["weights"]["predicted_bytes"]) == document["predicted"]["weights"]
    assert rows["weights"]["peak_bytes"] == ""
    assert "## Memory over time" in texts[2]
    assert "batch_size = " in texts[2]
    page = Page(texts[3])
    assert page.tags.isdisjoint({"script", "link", "img", "iframe"})
    assert page.attributes.isdisjoint({"src", "href", "onload"})
    assert texts[3].count("<polygon") == 1
    assert "1 m 30 s after its start" in page.words


def test_bad_use_writes_and_overwrites_nothing(kept: RunHistory, tmp_path: Path) -> None:
    kept.keep(run())
    text = export(tmp_path / "run.md")
    done = invoke("history", "1", "--export", str(tmp_path / "run.md"))
    assert (done.exit_code, "file exists" in done.stderr) == (2, True)
    assert (tmp_path / "run.md").read_text(encoding="utf-8") == text
    file = tmp_path / "run.md"
    assert invoke("history", "1", "--export", str(file)).exit_code == 2
    kept.keep(run())
    for words, said in (
        (["--export", str(file)], "--export takes one run"),
        (["1", "--export", "run.svg"], "there are: json, csv, md, html"),
        (["1", "--export", "run.htm"], "did you mean html"),
        (["1", "--export", str(tmp_path / "none" / "run.md")], "no such file or directory"),
    ):
        done = invoke("history", *words)
        assert done.exit_code == 2
        assert said in done.stderr
