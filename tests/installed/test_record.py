"""`vramtui record` writes what `vramtui --replay` plays, however it ends."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.installed.conftest import Run
from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import PATIENCE, until
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_it_well_and_killed_it_leaves_all_but_its_last_line(
    number: int, program: str, stand_in: StandIn, tmp_path: Path
) -> None:
    file = tmp_path / "job.jsonl"
    command, env = [program, "record", str(file), "--interval", "0.05"], stand_in.whole_environment()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        until(lambda: file.exists() and file.read_bytes().count(b"\n") >= 5)
        process.send_signal(number)
        killed = number == signal.SIGKILL
        assert process.wait(PATIENCE) == (-number if killed else 0)
        assert process.stderr is not None
        assert ("samples in" in process.stderr.read()) is not killed
    recording = read_recording(file)
    assert len(recording.samples) >= 4
    assert killed or recording.warnings == ()
