"""`vramtui record` writes what `vramtui --replay` plays, however it ends."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.installed.conftest import Run
from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import PATIENCE
from vramtui.records.recording.decoder import read_recording


def test_a_recording_follows_the_host(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.jsonl.gz"
    ended = run("record", str(file), "--interval", "0.05", "--duration", "1")
    assert ended.stdout == ""
    assert f"vramtui --replay {file}" in ended.stderr
    recording = read_recording(file)
    assert recording.header.interval == 0.05
    assert len(recording.samples) >= 2  # how many more depends on the machine
    assert recording.samples[-1].gpus[0].memory.used == 40 * GIB
    assert recording.header.versions["driver"] == "580.95.05"
    run("record", str(file), "--duration", "0", code=2)


def _recorder(program: str, stand_in: StandIn, file: Path) -> "subprocess.Popen[str]":
    command = [program, "record", str(file), "--interval", "0.05"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=stand_in.whole_environment())


def _wait_for_lines(file: Path, count: int, process: "subprocess.Popen[str]") -> None:
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_well(number: int, program: str, stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "job.jsonl"
    with _recorder(program, stand_in, file) as process:
        _wait_for_lines(file, 4, process)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert "samples in" in process.stderr.read()
    assert read_recording(file).warnings == ()


def test_a_killed_recorder_leaves_all_but_its_last_line(program: str, stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "job.jsonl"
    with _recorder(program, stand_in, file) as process:
        _wait_for_lines(file, 5, process)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
    assert len(read_recording(file).samples) >= 4
