"""A long recording is there before it is read, and in the end it is the same."""

import re
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.observation.probe_messages import Hello, ObservedJob
from vramtui.core.observation.readings import Gpu, Host, Process, Sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.growing_recording import GrowingRecording, open_recording
from vramtui.records.recording.jobs import JobLine, ReadJobs
from vramtui.records.recording.writer import Recording, RecordingHeader, RecordingWriter, read_recording

SECONDS = 1000


def sample(at: float) -> Sample:
    process = Process(pid=7, type="C", used_memory=int(at), started_at=5.0)
    gpu = Gpu(index=0, uuid="GPU-0", name="A", processes=(process,))
    return Sample(taken_at=at, source="nvml", host=Host(name="h"), gpus=(gpu,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        for at in range(1, SECONDS + 1):
            writer.write(RecordedTick(sample(float(at))))
    return path


def growing(path: Path) -> GrowingRecording:
    recording = open_recording(path, at_once=0)
    assert isinstance(recording, GrowingRecording)
    return recording


def test_its_beginning_is_there_at_once_and_the_rest_later(path: Path) -> None:
    recording = growing(path)
    assert recording.samples[0] == sample(1.0)
    assert 0 < len(recording.times) < SECONDS
    times = recording.times
    recording.wait()
    assert recording.reading is None
    assert len(times) == SECONDS, "who has the times has those that come later"
    assert list(recording.samples) == list(read_recording(path).samples)
    assert recording.warnings == ()


def test_a_short_one_is_read_whole(path: Path) -> None:
    recording = open_recording(path, at_once=1e9)
    assert isinstance(recording, Recording)
    assert recording.reading is None


@pytest.mark.parametrize(
    ("torn", "warning"),
    [(b'{"delta":{"taken', "cut off in line 1002"), (b"nonsense\n", "line 1002 is damaged")],
)
def test_what_is_wrong_further_on_is_said_later(path: Path, torn: bytes, warning: str) -> None:
    path.write_bytes(path.read_bytes() + torn)
    recording = growing(path)
    recording.wait()
    assert len(recording.samples) == SECONDS
    (said,) = recording.warnings
    assert re.search(warning, said)


def test_what_is_wrong_at_its_beginning_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(b"nonsense\n" + b"x\n" * 1000)
    with pytest.raises(UserError, match="line 1"):
        open_recording(path, at_once=0)


def test_a_damaged_file_shows_what_stands_before_the_damage(path: Path) -> None:
    packed = bytearray()
    packer = zlib.compressobj(wbits=31)
    for line in path.read_bytes().splitlines(keepends=True):
        packed += packer.compress(line) + packer.flush(zlib.Z_SYNC_FLUSH)
    packed[-2000:-1990] = b"\xff" * 10
    path.write_bytes(packed)
    recording = growing(path)
    recording.wait()
    assert len(recording.samples) > SECONDS // 2
    assert "damaged" in recording.warnings[0]


def test_of_too_many_moments_of_jobs_the_turns_of_their_fate_are_kept() -> None:
    jobs = ReadJobs(most=40)
    for at in range(1, 200):
        changes = {} if at != 50 else {"hello": {"v": 1, "pid": 7, "at": 50.0, "command": ["train"]}}
        jobs.take(
            JobLine(
                at=float(at), pid=7, new=at == 1, changes={**changes, "beat": {"v": 1, "pid": 7, "at": at, "step": at}}
            )
        )
    hello = Hello(v=1, pid=7, at=50.0, command=("train",))
    assert [job.hello for job in jobs.at(50.0)] == [hello]
    assert [job.hello for job in jobs.at(49.5)] == [None]
    (last,) = jobs.at(1e9)
    assert isinstance(last, ObservedJob)
    assert last.beat is not None
    assert last.beat.at == 199
    assert last.hello == hello
    assert len({id(job) for at in range(1, 200) for job in jobs.at(float(at))}) <= 41
