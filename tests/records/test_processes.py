from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from tests.loaded_once import bundled_presets
from tests.records.moments import moment
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD
from vramtui.core.estimate.estimate import Estimate, Ledger, Prediction
from vramtui.core.observation.history import FastSample, History, Peak
from vramtui.core.observation.readings import Gpu, Host, Process, ProcessKey, Sample, process_key
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.files import Recording, RecordingHeader, RecordingWriter, read_recording
from vramtui.records.recording.samples import MOST_PREDICTIONS

PRESETS = bundled_presets()
DEVICE = CARDS[DEFAULT_CARD]
FIRST, SECOND, THIRD, FOURTH = (msgspec.structs.replace(moment().sample, taken_at=100.0 + i) for i in range(4))
ONE = process_key(FIRST.host.name, FIRST.gpus[0], FIRST.gpus[0].processes[0])
KEY = ProcessKey("h", "GPU-0", 7, 5.0)


def predicted(place: int = 0) -> Prediction:
    found = PRESETS[place]
    return Prediction(
        preset=found.key,
        title=found.preset.name,
        workload=found.preset.workload,
        device=DEVICE,
        estimate=Estimate(method="analytic", parts=(), ledger=Ledger(process=7 << 30), peak_phase="step"),
    )


def write(path: Path, *ticks: tuple[Sample, Mapping[ProcessKey, Prediction]]) -> Recording:
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        for sample, predictions in ticks:
            writer.write(RecordedTick(sample, (), predictions))
    return read_recording(path)


def test_predictions_come_back_each_written_once(tmp_path: Path) -> None:
    every = {ProcessKey("h", "GPU-0", pid, 1.0): predicted(pid) for pid in range(len(PRESETS))}
    recording = write(tmp_path / "r.gz", (FIRST, every))
    assert recording.predictions_at(100.0) == every
    assert recording.every_prediction() == tuple(every.values())
    path = tmp_path / "r"
    every = {ONE: predicted()} | {ProcessKey("h", "GPU-0", pid, None): predicted() for pid in range(1, 500)}
    assert write(path, (FIRST, every), (msgspec.structs.replace(SECOND, gpus=()), {})).predictions_at(100.0) == every
    assert path.read_bytes().count(b'{"prediction":') == 1
    assert path.read_bytes().count(b'{"processes":{"at"') == 1


def test_a_process_has_the_prediction_that_it_had_then(tmp_path: Path) -> None:
    path = tmp_path / "r"
    first = {ONE: predicted()}
    recording = write(path, (FIRST, first), (SECOND, {ONE: predicted()}), (THIRD, {ONE: predicted(1)}), (FOURTH, {}))
    found = [recording.predictions_at(100.0 + at) for at in (-0.5, 0, 0.9, 1, 2, 3, 99)]
    assert found == [{}, *[first] * 3, {ONE: predicted(1)}, {}, {}]
    assert path.read_bytes().count(b'{"processes":{"at"') == 3
    assert path.read_bytes().count(b'{"prediction":') == 2


def test_stepping_through_sizes_for_ever_stays_bounded(tmp_path: Path) -> None:
    key = ProcessKey("h", "GPU-0", 1, None)
    ticks = [
        (
            msgspec.structs.replace(FIRST, taken_at=float(number)),
            {key: msgspec.structs.replace(predicted(), device=msgspec.structs.replace(DEVICE, total_memory=number))},
        )
        for number in range(MOST_PREDICTIONS + 50)
    ]
    assert len(write(tmp_path / "r", *ticks).every_prediction()) == MOST_PREDICTIONS


def test_a_number_without_a_prediction_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r"
    write(path, (FIRST, {}))
    with path.open("ab") as file:
        entry = b'{"host":"h","gpu_uuid":"g","pid":1,"started_at":null,"prediction":3}'
        file.write(b'{"processes":{"at":1.0,"processes":[%s]}}\n' % entry)
    (warning,) = read_recording(path).warnings
    assert "line 3 is damaged: prediction 3 is missing" in warning


def test_what_a_newer_version_adds_is_ignored_and_a_new_model_costs_only_its_prediction(tmp_path: Path) -> None:
    path = tmp_path / "r"
    write(path, (FIRST, {ONE: predicted()}))
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"estimate":{', b'"estimate":{"sure":true,'))
    assert read_recording(path).predictions_at(100.0) == {ONE: predicted()}
    kind = PRESETS[0].preset.model.__struct_config__.tag
    for new in (b'"kind":"hologram"', f'"rotors":[2],"kind":"{kind}"'.encode()):
        path.write_bytes(data.replace(f'"kind":"{kind}"'.encode(), new, 1))
        recording = read_recording(path)
        assert (len(recording.samples), recording.predictions_at(100.0)) == (1, {})
        assert "of a kind that this version does not know" in recording.warnings[0]


def sample(at: float, used: int) -> Sample:
    process = Process(pid=7, type="C", used_memory=used, started_at=5.0)
    gpu = Gpu(index=0, uuid="GPU-0", name="A", processes=(process,))
    return Sample(taken_at=at, source="nvml", host=Host(name="h"), gpus=(gpu,))


def test_peaks_come_back_as_they_were_and_are_written_once(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    history = History()
    history.add(sample(1.0, 900))
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        for at, used in ((2.0, 100), (3.0, 100), (4.0, 950), (5.0, 940), (6.0, 400), (7.0, 990)):
            if at == 6.0:
                history.add_looks([FastSample(KEY, 5.5, 970, 0.1)], sample(5.0, 940))
            history.add(sample(at, used))
            peak = history.tracks[KEY].peak
            assert peak is not None
            writer.write(RecordedTick(sample(at, used), (), {}, {KEY: peak}))
    recording = read_recording(path)
    told = {at: recording.peaks_at(float(at)) for at in range(1, 8)}
    (before,), (between,) = told.pop(2), told.pop(6)
    assert not any(told.values())
    assert (before[0], before[1].bytes, before[1].at) == (KEY, 900, 1.0)
    assert (between[0], between[1].bytes, between[1].at) == (KEY, 970, 5.5)
    assert path.read_bytes().count(b'"peak":') == 2
    peak = Peak(bytes=1 << 40, at=0.5, how="accounting", interval=0.1)
    with closing(RecordingWriter(tmp_path / "r.gz", RecordingHeader())) as writer:
        writer.write(RecordedTick(sample(1.0, 5), (), {}, {KEY: peak}))
    assert list(read_recording(tmp_path / "r.gz").peaks_at(1.0)) == [(KEY, peak)]
