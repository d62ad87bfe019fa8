from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.observation.readings import Gpu, Host, Process, Sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording import samples as recorded_samples
from vramtui.records.recording.files import RecordingHeader, RecordingWriter, read_recording
from vramtui.records.recording.samples import BLOCK, Samples, sample_in


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


@pytest.mark.parametrize(("field", "value"), [
    (b'"pid":7', b'"pid":"x"'), (b'"type":"C"', b'"type":"D"'), (b'"used_memory":7', b'"used_memory":"x"'),
    (b'"used_memory":7', b'"used_memory":' + b"9" * 400),
])  # fmt: skip
def test_what_has_to_be_known_is_not_made_up(field: bytes, value: bytes) -> None:
    (sample,) = growing(1)
    with pytest.raises(msgspec.ValidationError, match=field.decode().split('"')[1]):
        sample_in(encode_sample(sample).replace(field, value), None)
