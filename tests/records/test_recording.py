"""What was recorded comes back, whatever happened to the file; and a file that is none is said to be none."""

import gzip
import os
import re
import threading
import zlib
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.records.moments import moment
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import FileLimits
from vramtui.core.observation.readings import Gpu, Host, Process, Sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.files import RecordingHeader, RecordingWriter, open_recording, read_recording

HEADER = RecordingHeader(started_at=100.0, interval=1.0, versions={"vramtui": "0.1.0"})
HEAD = b'{"vramtui_recording":1}\n'
SAMPLES = tuple(
    msgspec.structs.replace(moment().sample, taken_at=100.0 + i, gpus=moment().sample.gpus[1:]) for i in range(5)
)
NAMES = ["recording.jsonl", "recording.jsonl.gz"]


def _record(path: Path) -> bytes:
    with closing(RecordingWriter(path, HEADER)) as writer:
        for sample in SAMPLES:
            writer.write(RecordedTick(sample))
    return path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    assert (_record(tmp_path / name)[:2] == b"\x1f\x8b") == name.endswith(".gz")
    recording = read_recording(tmp_path / name)
    assert (recording.header, recording.samples, recording.warnings) == (HEADER, SAMPLES, ())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_cut_file_gives_the_lines_before_the_cut(name: str, tmp_path: Path) -> None:
    data = _record(tmp_path / name)
    seen = set()
    for length in range(1, len(data)):
        (tmp_path / name).write_bytes(data[:length])
        try:
            recording = read_recording(tmp_path / name)
        except UserError as error:
            if not str(error).endswith("holds no sample"):
                raise
            seen.add(0)
            continue
        assert recording.samples == SAMPLES[: len(recording.samples)]
        assert all("was cut off in line" in warning for warning in recording.warnings)
        seen.add(len(recording.samples))
    assert seen == set(range(6))


LINES = [encode_sample(sample) + b"\n" for sample in SAMPLES]


@pytest.mark.parametrize(("content", "samples", "warning"), [
    (HEAD + b"".join(LINES)[:-10], SAMPLES[:4], "the recording was cut off in line 6, which is left out"),
    (b"".join(gzip.compress(line) for line in (HEAD, *LINES)), SAMPLES, ""),
    (gzip.compress(HEAD + LINES[0] * 5000), SAMPLES[:1] * 5000, ""),
    (b"".join(LINES), SAMPLES, "the recording has no header line"),
    (HEAD + LINES[2] + LINES[0] + LINES[1], SAMPLES[:3], "set back"),
], ids=["cut", "gzip members", "long", "no header", "clock set back"])  # fmt: skip
def test_what_can_be_played(content: bytes, samples: tuple[Sample, ...], warning: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(content)
    recording = read_recording(tmp_path / "r")
    assert tuple(recording.samples) == samples
    assert len(recording.warnings) == bool(warning)
    assert warning in "".join(recording.warnings)


GOOD = encode_sample(SAMPLES[0]) + b"\n"


@pytest.mark.parametrize(("content", "sentence"), [
    (b"", "r holds no sample"),
    (HEAD, "r holds no sample"),
    (b"hello\n", "r, line 1: JSON is malformed"),
    (b"\x00\xff\n" + GOOD, "r, line 1: "),
    (HEAD + b"{}\n", "r, line 2: Object missing required field `taken_at`"),
    (HEAD + GOOD.replace(b'"schema":1', b'"schema":7'), r"line 2: made by a newer version of vramtui \(format 7"),
    (HEAD + b'{"schema":2,"when":1}\n', r"line 2: made by a newer version of vramtui \(format 2, this one reads 1"),
    (HEAD + GOOD.replace(b'"taken_at":100.0', b'"taken_at":1e300'), "r, line 2: taken_at is 1e.300, which is not"),
    (
        HEAD + GOOD.replace(b'"gpus":[{', b'"gpus":[{"state":"' + b"a" * 5000 + b'",', 1),
        r"Invalid enum value 'a+…a+'.*state`$",
    ),
    (b'{"vramtui_recording":2}\n' + GOOD, r"line 1: made by a newer version of vramtui \(format 2, this"),
    (b'{"vramtui_recording":2,"interval":"often"}\n', r"r, line 1: made by a newer version of vramtui"),
    (gzip.compress(HEAD + GOOD)[:-8] + b"\0" * 8, "r: the compressed data is damaged; 0 lines of it can be read"),
])  # fmt: skip
def test_what_is_wrong_is_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(UserError, match=sentence) as raised:
        read_recording(tmp_path / "r")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500 + len(str(tmp_path))


@pytest.mark.parametrize(("line", "why"), [
    (b"", "Input data was truncated"),
    (b'{"taken_at":"now"}', r"Expected `float`, got `str` - at `\$.taken_at`"),
    (b'{"\\u001b[2J":1}', r"Object missing required field `taken_at`"),
    (b"\x00\xff", "malformed"),
])  # fmt: skip
def test_a_damaged_line_hides_itself_alone(line: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(HEAD + GOOD + line + b"\n" + GOOD)
    recording = read_recording(tmp_path / "r")
    assert list(recording.samples) == [SAMPLES[0]] * 2
    (warning,) = recording.warnings
    assert re.fullmatch(f"line 3 is damaged: .*{why}.*; it is left out", warning)
    assert warning.isprintable()


def test_with_a_damaged_line_goes_what_only_says_what_changed_since(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        for number in range(70):
            writer.write(RecordedTick(msgspec.structs.replace(SAMPLES[0], taken_at=100.0 + number)))
    lines = path.read_bytes().splitlines(keepends=True)
    whole = [number for number, line in enumerate(lines) if line.startswith(b'{"schema"')]
    assert len(whole) == 2
    lines[3] = b"nonsense\n"
    path.write_bytes(b"".join(lines))
    recording = read_recording(path)
    assert len(recording.samples) == len(lines) - 1 - (whole[1] - 3)
    assert recording.warnings[0].endswith(f"it is left out with {whole[1] - 4} after it")


def test_what_a_newer_version_adds_is_passed_over(tmp_path: Path) -> None:
    """Fields anywhere, and kinds of lines: of those a person is told."""
    head = b'{"vramtui_recording":1,"interval":1.0,"cluster":"a"}\n'
    more = GOOD.replace(b'"used":', b'"tier":1,"used":').replace(b'"schema":1', b'"schema":1,"fleet":[]')
    (tmp_path / "r").write_bytes(head + more + b'{"jobs_of":{"at":1.0}}\n' * 2)
    recording = read_recording(tmp_path / "r")
    assert (recording.samples, recording.header.interval) == (SAMPLES[:1], 1.0)
    assert recording.warnings == ("lines of a newer version, 'jobs_of', are left out",)


def test_an_endless_line_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.records.recording.files.RECORDING", FileLimits(what="sample", size=1 << 20))
    (tmp_path / "bomb").write_bytes(gzip.compress(b"[" * (8 << 20)))
    with pytest.raises(UserError, match=r"bomb, line 1: longer than any sample; is this a recording\?"):
        read_recording(tmp_path / "bomb")


def test_a_file_that_cannot_be_read_and_one_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.models.readers.bounded.FIRST_BYTE", 0.1)
    os.mkfifo(tmp_path / "pipe")
    whole = "is not a plain file"
    reasons = {"missing": "does not exist", "": whole, "/dev/zero": whole, "pipe": "no program wrote to it in 0.1 s"}
    for name, reason in reasons.items():
        with pytest.raises(UserError, match=reason):
            read_recording(tmp_path / name)
    monkeypatch.undo()
    data = _record(tmp_path / "r")
    threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[data]).start()
    assert read_recording(tmp_path / "pipe").times == read_recording(tmp_path / "r").times
    with pytest.raises(UserError, match="exists already; a recording never overwrites"):
        RecordingWriter(tmp_path / "r", HEADER)
    with pytest.raises(UserError, match="cannot be written: no such file or directory"):
        RecordingWriter(tmp_path / "no" / "r", HEADER)
    assert (tmp_path / "r").read_bytes() == data


def test_how_much_of_a_long_file_is_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(HEAD + (encode_sample(SAMPLES[0]) + b"\n") * 1000)
    told: list[float] = []
    assert len(read_recording(path, told.append).samples) == 1000
    assert told == sorted(told)
    assert len(told) == 10
    assert 0 < told[0] < told[-1] <= 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("used_memory", 1 << 63),
        ("used_memory", -(1 << 70)),
        ("started_at", 1e300),
        ("peak_memory", 1e30),
        ("pid", 1 << 80),
    ],
)
def test_figures_that_no_machine_has_are_refused_where_they_stand(field: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"r\.jsonl, line 2: .*{field}"):
        read_recording(_with_figure(tmp_path, field, value))


def _with_figure(folder: Path, field: str, value: float) -> Path:
    sample = msgspec.to_builtins(moment().sample)
    holder = next(gpu for gpu in sample["gpus"] if gpu["processes"])
    holder["processes"][0][field] = value
    path = folder / "r.jsonl"
    path.write_bytes(HEAD + msgspec.json.encode(sample) + b"\n")
    return path


SECONDS = 1000


def ticking(at: float) -> Sample:
    process = Process(pid=7, type="C", used_memory=int(at), started_at=5.0)
    gpu = Gpu(index=0, uuid="GPU-0", name="A", processes=(process,))
    return Sample(taken_at=at, source="nvml", host=Host(name="h"), gpus=(gpu,))


@pytest.fixture
def long(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        for at in range(1, SECONDS + 1):
            writer.write(RecordedTick(ticking(float(at))))
    return path


def test_its_beginning_is_there_at_once_and_the_rest_later(long: Path) -> None:
    recording = open_recording(long, at_once=0)
    assert recording.samples[0] == ticking(1.0)
    assert 0 < len(recording.times) < SECONDS
    times = recording.times
    recording.wait()
    assert recording.reading is None
    assert len(times) == SECONDS, "who has the times has those that come later"
    assert list(recording.samples) == list(read_recording(long).samples)
    assert recording.warnings == ()


def test_a_wrong_beginning_is_said_at_once(long: Path, tmp_path: Path) -> None:
    assert open_recording(long, at_once=1e9).reading is None
    path = tmp_path / "r"
    path.write_bytes(b"nonsense\n" + b"x\n" * 1000)
    with pytest.raises(UserError, match="line 1"):
        open_recording(path, at_once=0)


@pytest.mark.parametrize(
    ("torn", "warning"), [(b'{"changes":{"taken', "cut off in line 1002"), (b"nonsense\n", "line 1002 is damaged")]
)
def test_what_is_wrong_further_on_is_said_later(long: Path, torn: bytes, warning: str) -> None:
    long.write_bytes(long.read_bytes() + torn)
    recording = open_recording(long, at_once=0)
    recording.wait()
    assert len(recording.samples) == SECONDS
    (said,) = recording.warnings
    assert re.search(warning, said)


def test_a_damaged_file_shows_what_stands_before_the_damage(long: Path) -> None:
    packed = bytearray()
    packer = zlib.compressobj(wbits=31)
    for line in long.read_bytes().splitlines(keepends=True):
        packed += packer.compress(line) + packer.flush(zlib.Z_SYNC_FLUSH)
    packed[-2000:-1990] = b"\xff" * 10
    long.write_bytes(packed)
    recording = open_recording(long, at_once=0)
    recording.wait()
    assert len(recording.samples) > SECONDS // 2
    assert "damaged" in recording.warnings[0]
