import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.installed.conftest import Open, Run
from tests.installed.sleepers import sleepers
from tests.installed.stand_in import GIB, HARMLESS, StandIn
from tests.installed.terminal import PATIENCE, Terminal
from tests.stub.world import NO_PERMISSION, StubProcess


def _loaded(errors: str) -> set[str]:
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in errors.splitlines() if "import time:" in line}


def test_the_version_answers_with_next_to_nothing_loaded(run: Run) -> None:
    ended = run("--version", PYTHONPROFILEIMPORTTIME="1")
    assert re.fullmatch(r"vramtui \d+\.\d+\.\d+\S*\n", ended.stdout)
    assert _loaded(ended.stderr).isdisjoint({"textual", "rich", "typer", "torch", "pynvml", "msgspec", "psutil"})


def test_ps_as_json(run: Run, stand_in: StandIn) -> None:
    ended = run("ps", "--json", PYTHONPROFILEIMPORTTIME="1")
    assert _loaded(ended.stderr) >= {"pynvml", "msgspec"}
    assert _loaded(ended.stderr).isdisjoint({"textual", "rich", "torch", "plotext", "tomlkit"})
    document = json.loads(ended.stdout)
    assert (document["schema"], document["source"]) == (1, "nvml")
    busy, other = document["gpus"]
    assert (busy["name"], other["name"]) == ("NVIDIA H200 NVL", "NVIDIA L40S")
    assert (busy["memory"]["used"], busy["memory"]["unattributed"]) == (40 * GIB, 5 * GIB)
    assert other["memory"]["total"] == 46068 << 20
    held = {process["pid"]: process for process in busy["processes"]}
    assert set(held) == {stand_in.pids[0], stand_in.pids[2]}
    trained = held[stand_in.pids[0]]
    assert trained["command"] == "python train_llama.py --lr=1e-4"
    assert (trained["used_memory"], trained["peak_memory"]) == (33 * GIB, 33 * GIB)
    assert trained["state"] == "running"
    assert trained["user"]


@pytest.mark.pty
def test_with_nothing_compiled_and_a_net_whose_tables_are_compressed(
    run: Run, stand_in: StandIn, open_terminal: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "empty"))
    with sleepers([("python", "train.py", "resnet50", "--batch-size=64")]) as (pid,):
        stand_in.busy.processes.append(StubProcess(pid, GIB))
        stand_in.show()
        rows = json.loads(run("ps", "--json").stdout)["gpus"][0]["processes"]
        assert [row["outlook"] != [] for row in rows] == [False, False, True]
        open_terminal().wait_for("resnet50")


def test_a_hostile_name_is_letters_in_everything_printed(run: Run, stand_in: StandIn, tmp_path: Path) -> None:
    document = run("ps", "--json").stdout
    assert f"{HARMLESS} hostile-argument" in [
        process["command"] for gpu in json.loads(document)["gpus"] for process in gpu["processes"]
    ]
    table = run("ps").stdout
    assert f"{HARMLESS} hostile-argument" in table
    assert len(stand_in.pids) == 3
    formats = [word for kind in ("json", "csv", "md", "html") for word in ("--format", kind)]
    run("snapshot", *formats, "--folder", str(tmp_path / "taken"))
    files = {path.suffix: path.read_text() for path in (tmp_path / "taken").iterdir()}
    assert set(files) == {".json", ".csv", ".md", ".html"}
    for text in (document, table, *files.values()):
        assert not {character for character in text if ord(character) < 32} - {"\n"}
    for kind in (".json", ".csv", ".md", ".html"):
        assert f"{HARMLESS} hostile-argument" in files[kind]
    assert "[red]x[/]" in files[".html"]


def test_snapshots_never_overwrite_and_need_a_folder(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    for _ in range(2):
        run("snapshot", "--format", "csv", "--format", "json", "--folder", str(folder))
    paths = sorted(folder.iterdir())
    assert len(paths) == 4
    assert all(str(33 * GIB) in path.read_text() for path in paths)
    ended = run("snapshot", "--format", "json", "--folder", str(paths[0]), code=2)
    assert ended.stderr.count("\n") == 1
    assert "choose another folder" in ended.stderr


def test_without_a_library_or_a_terminal_it_says_so(run: Run, tmp_path: Path) -> None:
    for arguments, code, words in ((("ps", "--json"), 3, "libnvidia-ml"), ((), 2, "needs a terminal")):
        ended = run(*arguments, code=code, LD_LIBRARY_PATH=str(tmp_path))
        assert ended.stdout == ""
        assert words in ended.stderr
    assert run("--intervall", "1", code=2).stderr.strip()


def test_watching_until_ctrl_c(program: str, stand_in: StandIn) -> None:
    with Terminal([program, "ps", "--watch", "--interval", "0.2"], env=stand_in.environment) as terminal:
        terminal.wait_for("train_llama.py", "33.0")
        stand_in.busy.processes[0].used = 34 * GIB
        stand_in.show()
        terminal.wait_for("train_llama.py", "34.0")
        terminal.leave("\x03", 130)
        assert "Traceback" not in terminal.text


def test_names_that_are_no_unicode(run: Run, stand_in: StandIn) -> None:
    with sleepers([(os.fsdecode(b"caf\xe9-\xff"), "latin-one")]) as pids:
        stand_in.busy.processes[0].pid = pids[0]
        stand_in.show()
        for arguments in (["ps", "--json"], ["ps"]):
            run(*arguments).stdout.encode()
        commands = [process["command"] for process in json.loads(run("ps", "--json").stdout)["gpus"][0]["processes"]]
    assert any("latin-one" in command for command in commands)


@pytest.mark.parametrize(("arguments", "code", "told"), [
    ("fit llama-3.1-8b-full --gpu H100", 0, "vramtui: tight:"),
    ("estimate llama-3.1-8b-full --gpu 4090", 1, ""),
    ("ps --json", 0, ""),
    ("ps --watch --interval 0.1 --json", 0, ""),
])  # fmt: skip
def test_a_reader_that_has_had_enough_is_no_failure_and_changes_no_verdict(
    arguments: str, code: int, told: str, program: str, stand_in: StandIn
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    env = stand_in.whole_environment()
    ended = subprocess.run(
        [program, *arguments.split()], stdout=writes, stderr=subprocess.PIPE, text=True, env=env, check=False
    )
    os.close(writes)
    assert (ended.returncode, ended.stderr.partition(" needs ")[0]) == (code, told)


def _checks(text: str) -> dict[str, dict[str, str]]:
    return {check["check"]: check for check in json.loads(text)["checks"]}


def test_a_host_as_it_should_be_and_what_is_wrong_with_its_next_step(run: Run, stand_in: StandIn) -> None:
    stand_in.busy.accounting = stand_in.other.accounting = 1
    stand_in.show()
    checks = _checks(run("doctor", "--json", code=0).stdout)
    assert checks["nvml"]["verdict"] == "ok"
    assert "2 GPUs (NVIDIA H200 NVL, NVIDIA L40S), driver 580.95.05, CUDA 13.0" in checks["nvml"]["message"]
    assert (checks["gpus"]["verdict"], checks["accounting"]["verdict"]) == ("ok", "ok")
    # There is no nvidia-smi on this PATH and there are no device files behind the stand-in.
    assert checks["nvidia-smi"]["verdict"] == "warning"
    stand_in.busy.lose()
    stand_in.other.fail(NO_PERMISSION, "nvmlDeviceGetUtilizationRates")
    stand_in.show()
    checks = _checks(run("doctor", "--json", code=0).stdout)
    assert checks["gpus"]["message"].startswith("GPU 0: ")
    assert "lost" in checks["gpus"]["message"]
    assert "reset" in checks["gpus"]["hint"]
    stand_in.world.gpus.remove(stand_in.busy)
    stand_in.show()
    checks = _checks(run("doctor", "--json", code=0).stdout)
    assert checks["gpus"]["message"] == "GPU 0: utilization no permission"


def test_no_driver_at_all_and_one_that_hangs(run: Run, stand_in: StandIn) -> None:
    ended = run("doctor", code=2, LD_LIBRARY_PATH="")
    for words in ("libnvidia-ml.so.1 was not found", "Install the NVIDIA driver", "Not usable yet: nvml"):
        assert words in ended.stdout
    stand_in.world.hangs["nvmlSystemGetDriverVersion"] = -1.0
    stand_in.show()
    checks = _checks(run("doctor", "--json", "--timeout", "3", code=0).stdout)
    assert checks["nvml"]["message"] == "no answer within 3 s"


TOLD = "too many open files: this shell lets a program open"


def _limited(files: int, program: str, *arguments: str) -> list[str]:
    return ["/bin/sh", "-c", f'ulimit -n {files}; exec "$0" "$@"', program, *arguments]


@pytest.mark.parametrize("files", [8, 10, 16])
@pytest.mark.parametrize("arguments", [(), ("--demo",)])
def test_without_room_it_says_so(files: int, arguments: tuple[str, ...], program: str, stand_in: StandIn) -> None:
    with Terminal(_limited(files, program, *arguments), env=stand_in.environment) as terminal:
        assert (terminal.ended(), terminal.modes) == (2, {})
        assert f"{TOLD} {files}" in terminal.text
        assert "Traceback" not in terminal.text


def test_with_a_few_more_it_works(program: str, stand_in: StandIn) -> None:
    with Terminal(_limited(24, program), env=stand_in.environment) as terminal:
        terminal.wait_for("train_llama.py")
        terminal.leave()


@pytest.mark.parametrize("files", [7, 8, 10])
@pytest.mark.parametrize(
    "arguments", [("ps",), ("record", "it.jsonl", "--duration", "0.5"), ("run", "--", "/bin/echo", "the job")]
)
def test_works_or_says_so(
    files: int, arguments: tuple[str, ...], program: str, stand_in: StandIn, tmp_path: Path
) -> None:
    ended = subprocess.run(
        _limited(files, program, *arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path,
        env=stand_in.whole_environment(), timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 0 or (ended.returncode == 2 and TOLD in ended.stderr), ended.stderr
    if arguments[0] == "run" and files == 10:  # the job starts all the same
        assert (ended.returncode, ended.stdout) == (0, "the job\n")
        assert f"the job runs without the driver's figures: {TOLD} 10" in ended.stderr
