from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.observation.readings import Gpu, Host, Process, Sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording import samples as recorded_samples
from vramtui.records.recording.decoder import RecordingHeader, read_recording
from vramtui.records.recording.samples import BLOCK, Samples, sample_in
from vramtui.records.recording.writer import RecordingWriter


def growing(count: int) -> tuple[Sample, ...]:
    still = Process(pid=8, type="C", used_memory=7)
    return tuple(
        Sample(
            taken_at=100.0 + 10 * tick,
            source="nvml",
            host=Host(name="h"),
            gpus=(Gpu(index=0, uuid="GPU-0", name="A", processes=(still, Process(pid=7, type="C", used_memory=tick))),),
        )
        for tick in range(count)
    )


def written(path: Path, samples: tuple[Sample, ...]) -> Path:
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        for sample in samples:
            writer.write(RecordedTick(sample))
    return path


@pytest.fixture
def _one_block_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_samples, "READY", 1)


@pytest.mark.usefixtures("_one_block_ready")
def test_all_are_there_though_one_block_is_ready(tmp_path: Path) -> None:
    samples = growing(10 * BLOCK)
    recording = read_recording(written(tmp_path / "r.gz", samples))
    assert isinstance(recording.samples, Samples)
    assert len(recording.samples) == len(samples)
    assert tuple(recording.samples) == samples
    assert tuple(reversed(recording.samples)) == samples[::-1]
    assert recording.samples[-1] == samples[-1]
    assert recording.samples[7:200:13] == samples[7:200:13]
    assert list(recording.times) == [sample.taken_at for sample in samples]
    with pytest.raises(IndexError):
        recording.samples[len(samples)]


def test_a_short_recording_is_all_in_hand(tmp_path: Path) -> None:
    samples = growing(3 * BLOCK)
    assert read_recording(written(tmp_path / "r", samples)).samples == samples


@pytest.mark.usefixtures("_one_block_ready")
def test_a_clock_that_was_set_back_in_a_long_recording(tmp_path: Path) -> None:
    samples = growing(6 * BLOCK)
    turned = (*samples[3 * BLOCK :], *samples[: 3 * BLOCK])
    recording = read_recording(written(tmp_path / "r", turned))
    assert tuple(recording.samples) == samples
    assert list(recording.times) == [sample.taken_at for sample in samples]
    assert "set back" in recording.warnings[0]


LONG = growing(5 * BLOCK)


@given(st.lists(st.integers(0, 5 * BLOCK - 1), max_size=30), st.integers(1, 4))
def test_in_any_order(places: list[int], ready: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_samples, "READY", ready)
        samples = Samples()
        for sample in LONG:
            samples.add(msgspec.json.encode(sample), sample)
        for place in places:
            assert samples[place] == LONG[place]


@pytest.mark.parametrize("value", [b"1152921504606846976", b'"x"', b"[1]", b"1e300", b"9" * 400])
def test_a_figure_that_is_none_hides_itself_alone(value: bytes) -> None:
    (sample,) = growing(1)
    whole = encode_sample(sample).replace(b'"used_memory":7', b'"used_memory":' + value)
    read = sample_in(whole, None)
    still, grows = read.gpus[0].processes
    assert (still.used_memory, grows) == (None, sample.gpus[0].processes[1])
    assert [problem.message for problem in read.problems] == ["left out: gpus[0].processes[0].used_memory"]
    change = (
        b'{"changes":{"taken_at":110.0,"gpus":{"0":{"utilization":5,"processes":{"1":{"used_memory":%s}}}}}}' % value
    )
    read = sample_in(change, sample)
    assert read.gpus[0].processes == (sample.gpus[0].processes[0], msgspec.structs.replace(grows, used_memory=None))
    assert read.gpus[0].utilization == 5
    assert [problem.message for problem in read.problems] == ["left out: used_memory"]


@pytest.mark.parametrize(("field", "value"), [(b'"pid":7', b'"pid":"x"'), (b'"type":"C"', b'"type":"D"')])
def test_what_has_to_be_known_is_not_made_up(field: bytes, value: bytes) -> None:
    (sample,) = growing(1)
    with pytest.raises(msgspec.ValidationError, match=field.decode().split('"')[1]):
        sample_in(encode_sample(sample).replace(field, value), None)


def test_a_line_of_wrong_figures_is_looked_at_a_few_times_only() -> None:
    rows = tuple(Process(pid=pid, type="C", used_memory=7) for pid in range(1000))
    (sample,) = growing(1)
    crowded = msgspec.structs.replace(sample, gpus=(msgspec.structs.replace(sample.gpus[0], processes=rows),))
    with pytest.raises(msgspec.ValidationError, match="used_memory"):
        sample_in(encode_sample(crowded).replace(b'"used_memory":7', b'"used_memory":"x"'), None)
