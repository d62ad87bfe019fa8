import json
import platform
import time
from pathlib import Path

import msgspec
import pytest

from tests.commands import invoke
from tests.examples import a_run
from vramtui.core.estimate.estimate import Ledger
from vramtui.records.run_history import FILE, RunHistory

GIB, MIB = 1 << 30, 1 << 20


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunHistory:
    monkeypatch.setenv("VRAMTUI_DATA_DIR", str(tmp_path))
    return RunHistory(tmp_path / FILE)


RUN = a_run(
    command="python \x1b[2Jtrain.py",
    started_at=1.7e9,
    ended_at=1.7e9 + 90,
    ending="out_of_memory",
    exit_code=1,
    workload={"run": {"batch_size": 8, "lora": None}},
    peak_phase="backward",
)


def test_an_empty_history_says_what_to_do_and_one_as_json(kept: RunHistory) -> None:
    done = invoke("history")
    assert done.exit_code == 0
    assert "vramtui run --preset NAME" in done.stdout
    kept.keep(RUN)
    kept.keep(msgspec.structs.replace(RUN, key="other", pid=1, preset="tiny-gpt"))
    kept.keep(msgspec.structs.replace(RUN, key="third", pid=2, ending="exited", exit_code=0, preset="other"))
    document = json.loads(invoke("history", "--json", "--preset", "gpt2-124m").stdout)
    assert document["schema"] == 1
    (row,) = document["runs"]
    assert (row["id"], row["preset"], row["predicted"]["process"]) == (1, "gpt2-124m", 20 * GIB)
    assert row["error"] == pytest.approx(-0.05)
    assert document["errors"] == []
    document = json.loads(invoke("history", "--json").stdout)
    assert [(row["preset"], row["ending"]) for row in document["runs"]][-1] == ("gpt2-124m", "out_of_memory")
    assert document["errors"][0]["runs"] == 1


def test_the_list_the_spread_and_one_run(kept: RunHistory) -> None:
    kept.keep(RUN)
    kept.keep(msgspec.structs.replace(RUN, key="other", pid=1, ending="exited", exit_code=0))
    done = invoke("history")
    assert done.exit_code == 0
    assert "out of memory (1)" in done.stdout
    assert "−5.0 %" in done.stdout
    assert "analytic on transformer models: median −5.0 %" in done.stdout
    assert "\x1b" not in done.stdout
    teach(kept)
    lines = invoke("history").stdout.splitlines()
    assert any(line.split() == ["below", "−20", "%", "███", "3"] for line in lines)
    for pid in range(3):
        one = msgspec.structs.replace(RUN, key=str(pid), pid=pid, started_at=1.7e9 + pid * 86400)
        kept.keep(msgspec.structs.replace(one, ending="exited", exit_code=0))
    done = invoke("history", "--plot")
    assert done.exit_code == 0
    assert done.stdout.count("o") > 3
    assert "observed over predicted, %" in done.stdout
    row = next(line for line in done.stdout.splitlines() if "−10 to −5 %" in line and "#" in line)
    assert row.count("#") > 10
    assert "\x1b" not in done.stdout
    done = invoke("history", "1")
    assert done.exit_code == 0
    assert "weights" in done.stdout
    assert "run: batch_size = 8" in done.stdout
    assert invoke("history", "99").exit_code == 2


def test_one_is_forgotten_but_not_one_that_goes_on(kept: RunHistory) -> None:
    now = time.time()
    kept.keep(msgspec.structs.replace(RUN, host="elsewhere", started_at=now - 60, ended_at=None, ending="running"))
    done = invoke("history", "--forget", "1")
    assert done.exit_code == 2
    assert "run 1 is still running" in done.stderr
    assert len(kept.runs()) == 1
    kept.keep(RUN)
    done = invoke("history", "--forget", "1")
    assert done.exit_code == 0
    assert "gpt2-124m" in done.stdout
    assert kept.runs() == ()
    assert invoke("history", "--forget", "1").exit_code == 2


def teach(kept: RunHistory, count: int = 3, gpu_name: str = "NVIDIA H200") -> None:
    for number in range(count):
        context = (500 + number) * MIB
        observed = Ledger(allocated=8 * GIB, reserved=10 * GIB, context=context, process=10 * GIB + context)
        kept.keep(
            msgspec.structs.replace(
                RUN,
                key=f"taught-{number}",
                host=platform.node(),
                gpu_name=gpu_name,
                pid=100 + number,
                ending="exited",
                exit_code=0,
                run_kind="train",
                observed=observed,
                peak_how="probe",
                versions={"driver": "580.1"},
            )
        )


def test_runs_are_filtered_ordered_and_limited(kept: RunHistory) -> None:
    kept.keep(RUN)
    kept.keep(msgspec.structs.replace(RUN, key="b", pid=2, host="other", started_at=1.6e9, ended_at=1.6e9 + 1))
    kept.keep(msgspec.structs.replace(RUN, key="c", pid=3, ending="exited", observed=Ledger(process=30 * GIB)))

    def numbers(*arguments: str) -> list[int]:
        done = invoke("history", "--json", *arguments)
        assert done.exit_code == 0, done.output
        return [row["id"] for row in json.loads(done.stdout)["runs"]]

    assert numbers() == [3, 1, 2]
    assert numbers("--failed") == [1, 2]
    assert numbers("--host", "other") == [2]
    assert numbers("--since", "2023-01-01", "--gpu", "h200", "--preset", "gpt2") == [3, 1]
    assert numbers("--since", "1h") == []
    assert numbers("--sort", "error")[0] == 3
    assert numbers("--sort", "observed", "--reverse")[-1] == 3
    assert numbers("--sort", "when", "--reverse", "--limit", "1") == [2]
    assert "No recorded run" in invoke("history", "--host", "nowhere").stdout
    for wrong, said in (("--sort", "there are: when"), ("--since", "like 7d")):
        done = invoke("history", wrong, "wehn")
        assert done.exit_code == 2
        assert said in done.stderr
    for pid in range(3):
        kept.keep(msgspec.structs.replace(RUN, key=str(pid), pid=pid, command=f"python job{pid}.py"))
    rows = invoke("history", "job1").stdout
    assert "job1.py" in rows
    assert "job2.py" not in rows
    assert invoke("history", "--last", "2").stdout.count("python job") == 2
    assert "No recorded run matches." in invoke("history", "llama").stdout
    failed = invoke("history", "job1", "--export", "run.html")
    assert (failed.exit_code, "--export takes one run" in failed.stderr) == (2, True)
