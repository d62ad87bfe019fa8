"""A recording in place of this machine: looked at once, and played in the dashboard."""

import gzip
import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.installed.conftest import Open, Run
from tests.installed.stand_in import GIB, HARMLESS, HOSTILE
from tests.installed.terminal import Terminal
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.decoder import RecordingHeader
from vramtui.records.recording.writer import RecordingWriter


def _recorded(path: Path, ticks: int, interval: float, first: int, step: int) -> Path:
    """A job that begins with `first` bytes and grows by `step` at each tick."""
    with closing(RecordingWriter(path, RecordingHeader(started_at=1000.0, interval=interval))) as writer:
        for tick in range(ticks):
            used = first + tick * step
            command = f"{HOSTILE} rehearsed.py"
            job = Process(pid=77, type="C", used_memory=used, user="eve", command=command, started_at=5.0)
            memory = Memory(total=80 * GIB, used=used + GIB, reserved=GIB, free=78 * GIB - used)
            gpu = Gpu(index=0, uuid="GPU-0", name="NVIDIA A100", memory=memory, processes=(job,))
            sample = Sample(taken_at=1000 + tick * interval, source="nvml", host=Host(name="elsewhere"), gpus=(gpu,))
            writer.write(RecordedTick(sample))
    return path


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return _recorded(tmp_path / "zipped.jsonl.gz", 20, 0.2, 10 * GIB, GIB)


def test_a_recording_is_looked_at_as_a_host(run: Run, recording: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(gzip.decompress(recording.read_bytes()))
    for path in (recording, plain):
        document = json.loads(run("ps", "--json", "--replay", str(path)).stdout)
        assert (document["host"], document["taken_at"]) == ("elsewhere", 1000.0)
        (process,) = document["gpus"][0]["processes"]
        assert (process["used_memory"], process["command"]) == (10 * GIB, f"{HARMLESS} rehearsed.py")
    plain.write_text(plain.read_text()[:40] + "\nnonsense\n")
    ended = run("ps", "--replay", str(plain), code=2)
    assert ended.stderr.startswith(f"vramtui: {plain}, line 1: ")
    assert ended.stderr.count("\n") == 1


def test_the_dashboard_plays_it_at_its_pace(open_terminal: Open, recording: Path) -> None:
    terminal = open_terminal("--interval", "0.1", "--replay", str(recording), size=(160, 40))
    terminal.wait_for("elsewhere", "rehearsed.py", "eve", recording.name)
    terminal.wait_for("29.0")
    terminal.send("q")
    assert terminal.ended() == 0
    assert terminal.left_behind() == []


def test_a_recording_that_was_cut_off_plays_to_the_cut(open_terminal: Open, recording: Path) -> None:
    recording.write_bytes(recording.read_bytes()[:-25])
    terminal = open_terminal("--replay", str(recording), size=(160, 40))
    terminal.wait_for("cut off in line")
    terminal.wait_for("rehearsed.py")
    terminal.send("q")
    assert terminal.ended() == 0


def _go_to(terminal: Terminal, text: str) -> None:
    terminal.wait(lambda screen: "go to: " not in screen)  # the line of the time before
    terminal.send("g")
    terminal.wait_for("go to: ")
    terminal.send(f"{text}\r")


def test_seeking_in_an_hour(open_terminal: Open, tmp_path: Path) -> None:
    hour = _recorded(tmp_path / "hour.jsonl.gz", 3600, 1.0, GIB, 10 * (1 << 20))
    terminal = open_terminal("--replay", str(hour), size=(160, 40), cwd=tmp_path, TZ="UTC")
    terminal.wait_for("rehearsed.py", "01:16:39", "1x")
    terminal.send(" ")
    _go_to(terminal, "50%")
    terminal.wait_for("00:46:39", "50%", "18.6")  # 1 GiB and 1799 times 10 MiB
    terminal.send(",")
    terminal.wait_for("00:46:38", "18.6")
    _go_to(terminal, "01:00")
    terminal.wait_for("01:00:00", "26.4")
    _go_to(terminal, "-40m")
    terminal.wait(lambda screen: "00:20:00" in screen and "3.0" in screen and "26.4" not in screen)
    _go_to(terminal, "tomorrow")
    terminal.wait_for("'tomorrow' is not a position in a recording")
    terminal.send("\x1b")
    # Gone from the line itself, or the next key would come as one with Alt held.
    terminal.wait(lambda screen: " tomorrow " not in screen)
    terminal.send(")")
    terminal.wait_for("2x")
    terminal.send("s")
    terminal.wait_for("Snapshot written")
    assert list(tmp_path.glob("vramtui-elsewhere-19700101-002000.md"))
    terminal.send("q")
    assert terminal.ended() == 0
    assert terminal.left_behind() == []
