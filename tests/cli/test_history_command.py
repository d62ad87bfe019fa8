"""`vramtui history` shows what is kept."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from vramtui.cli.main import program
from vramtui.core.ledger import Ledger
from vramtui.core.runs import Run
from vramtui.records.run_history import FILE, RunHistory

GIB = 1 << 30
invoke = CliRunner().invoke


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunHistory:
    monkeypatch.setenv("VRAMTUI_DATA_DIR", str(tmp_path))
    return RunHistory(tmp_path / FILE)


RUN = Run(
    key="k",
    source="run",
    host="gpu01",
    gpu_uuid="GPU-0",
    gpu_name="NVIDIA H200",
    pid=4213,
    command="python \x1b[2Jtrain.py",
    started_at=1.7e9,
    ended_at=1.7e9 + 90,
    ending="out_of_memory",
    exit_code=1,
    preset="gpt2-124m",
    model_kind="transformer",
    workload={"run": {"batch_size": 8, "lora": None}},
    method="analytic",
    peak_phase="backward",
    predicted=Ledger(weights=GIB, process=20 * GIB),
    observed=Ledger(process=19 * GIB),
)


def test_an_empty_history_says_what_to_do() -> None:
    done = invoke(program(), ["history"])
    assert done.exit_code == 0
    assert "vramtui run --preset NAME" in done.stdout


def test_the_list_and_the_spread_of_errors(kept: RunHistory) -> None:
    kept.keep(RUN)
    kept.keep(msgspec.structs.replace(RUN, key="other", pid=1, ending="exited", exit_code=0))
    done = invoke(program(), ["history"])
    assert done.exit_code == 0
    assert "out of memory (1)" in done.stdout
    assert "−5.0 %" in done.stdout
    assert "analytic on transformer models: median −5.0 %" in done.stdout
    assert "\x1b" not in done.stdout


def test_one_run(kept: RunHistory) -> None:
    kept.keep(RUN)
    done = invoke(program(), ["history", "1"])
    assert done.exit_code == 0
    assert "weights" in done.stdout
    assert "run: batch_size = 8" in done.stdout
    assert invoke(program(), ["history", "2"]).exit_code == 2


def test_as_json(kept: RunHistory) -> None:
    kept.keep(RUN)
    kept.keep(msgspec.structs.replace(RUN, key="other", pid=1, preset="tiny-gpt"))
    kept.keep(msgspec.structs.replace(RUN, key="third", pid=2, ending="exited", exit_code=0, preset="other"))
    document = json.loads(invoke(program(), ["history", "--json", "--preset", "gpt2-124m"]).stdout)
    assert document["schema"] == 1
    (row,) = document["runs"]
    assert (row["id"], row["preset"], row["predicted"]["process"]) == (1, "gpt2-124m", 20 * GIB)
    assert row["error"] == pytest.approx(-0.05)
    assert document["errors"] == []
    document = json.loads(invoke(program(), ["history", "--json"]).stdout)
    assert [(row["preset"], row["ending"]) for row in document["runs"]][-1] == ("gpt2-124m", "out_of_memory")
    assert document["errors"][0]["runs"] == 1
