"""What `vramtui record` writes beside its samples: what a probe tells it, and what a preset predicts."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.installed.our_presets import add_preset
from tests.installed.stand_in import StandIn
from tests.installed.terminal import PATIENCE
from vramtui.core.observation.probe_messages import Beat, Hello, MemoryCounters, ProbeDevice
from vramtui.records.recording.decoder import read_recording

GIB = 1 << 30


@pytest.fixture
def place() -> Iterator[Path]:
    """A run-time folder whose name is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="vt") as made:
        yield Path(made)


def _wait_for(file: Path, text: bytes, process: "subprocess.Popen[str]") -> None:
    while not file.exists() or text not in file.read_bytes():
        assert process.poll() is None
        time.sleep(0.01)


def _tell(listeners: Path, process: "subprocess.Popen[str]") -> socket.socket:
    """A job that says who it is and what it holds, to the listener in that folder."""
    while not (found := [*listeners.glob("*.sock")]):
        assert process.poll() is None
        time.sleep(0.01)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(str(found[0]))
    device = ProbeDevice(index=0, name="NVIDIA H200", total_memory=139 * GIB, capability=(9, 0), uuid="GPU-0")
    peer.send(msgspec.json.encode(Hello(v=1, pid=1, at=1.0, command=("train.py",), devices=(device,))))
    counters = MemoryCounters(index=0, allocated=5 * GIB, allocated_peak=6 * GIB, reserved_peak=7 * GIB)
    peer.send(msgspec.json.encode(Beat(v=1, pid=1, at=2.0, step=3, devices=(counters,))))
    return peer


def test_what_a_probe_tells_and_what_is_predicted(program: str, stand_in: StandIn, place: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.jsonl"
    add_preset(tmp_path / "config")
    environment = stand_in.whole_environment(XDG_RUNTIME_DIR=str(place))
    with subprocess.Popen(
        [program, "record", str(file), "--interval", "0.05"], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        with _tell(place / "vramtui", process):
            _wait_for(file, b'"step":3', process)
            _wait_for(file, b'{"processes":', process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    recording = read_recording(file)
    last = recording.samples[-1].taken_at
    (job,) = recording.jobs_at(last)
    assert job.pid == os.getpid()
    assert job.ledger(0).reserved == 7 * GIB
    assert recording.jobs_at(recording.samples[0].taken_at - 1) == ()
    predicted = recording.predictions_at(last)
    assert {prediction.preset for prediction in predicted.values()} == {"ours"}
    assert not list((place / "vramtui").iterdir())


def test_it_records_where_no_probe_can_speak(program: str, stand_in: StandIn, place: Path, tmp_path: Path) -> None:
    (place / "vramtui").mkdir(mode=0o755)
    ended = subprocess.run(
        [program, "record", str(tmp_path / "r.jsonl"), "--duration", "0"],
        capture_output=True,
        text=True,
        env=stand_in.whole_environment(XDG_RUNTIME_DIR=str(place)),
        check=True,
    )
    assert "recording without probes: " in ended.stderr
    assert len(read_recording(tmp_path / "r.jsonl").samples) == 1
