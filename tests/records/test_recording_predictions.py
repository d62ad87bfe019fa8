"""What was predicted when it was recorded comes back, whatever became of the presets."""

from contextlib import closing
from pathlib import Path

import msgspec

from tests.loaded_once import bundled_presets
from tests.records.moments import moment
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD
from vramtui.core.estimate.estimate import Estimate, Prediction
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.readings import Process, ProcessKey, Sample, process_key
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.predictions import MOST_PREDICTIONS
from vramtui.records.recording.writer import Recording, RecordingHeader, RecordingWriter, read_recording

PRESETS = bundled_presets()
DEVICE = CARDS[DEFAULT_CARD]


def predicted(place: int = 0, process: int = 7 << 30) -> Prediction:
    found = PRESETS[place]
    return Prediction(
        preset=found.key,
        title=found.preset.name,
        workload=found.preset.workload,
        device=DEVICE,
        estimate=Estimate(method="analytic", parts=(), ledger=Ledger(process=process), peak_phase="step"),
    )


def samples(count: int) -> tuple[Sample, ...]:
    gpus = moment().sample.gpus
    return tuple(msgspec.structs.replace(moment().sample, taken_at=100.0 + i, gpus=gpus) for i in range(count))


def key_of(sample: Sample, process: Process) -> ProcessKey:
    return process_key(sample.host.name, sample.gpus[0], process)


def write(path: Path, *ticks: tuple[Sample, dict[ProcessKey, Prediction]]) -> Recording:
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        for sample, predictions in ticks:
            writer.write(RecordedTick(sample, (), predictions))
    return read_recording(path)


def test_every_bundled_presets_prediction_comes_back_as_it_was(tmp_path: Path) -> None:
    (sample,) = samples(1)
    every = {ProcessKey("h", "GPU-0", pid, 1.0): predicted(pid) for pid in range(len(PRESETS))}
    recording = write(tmp_path / "r.gz", (sample, every))
    assert recording.predictions.at(100.0) == every
    assert recording.predictions.every() == tuple(every.values())


def test_a_process_has_the_prediction_that_it_had_then(tmp_path: Path) -> None:
    first, second, third, fourth = samples(4)
    one = key_of(first, first.gpus[0].processes[0])
    path = tmp_path / "r"
    recording = write(
        path, (first, {one: predicted()}), (second, {one: predicted()}), (third, {one: predicted(1)}), (fourth, {})
    )
    found = [recording.predictions.at(100.0 + at) for at in (-0.5, 0, 0.9, 1, 2, 3, 99)]
    assert found == [{}, *[{one: predicted()}] * 3, {one: predicted(1)}, {}, {}]
    assert path.read_bytes().count(b'{"matched":') == 3
    assert path.read_bytes().count(b'{"prediction":') == 2


def test_nothing_is_said_of_a_process_that_is_gone(tmp_path: Path) -> None:
    first, second = samples(2)
    one = key_of(first, first.gpus[0].processes[0])
    path = tmp_path / "r"
    write(path, (first, {one: predicted()}), (msgspec.structs.replace(second, gpus=()), {}))
    assert path.read_bytes().count(b'{"matched":') == 1


def test_the_same_prediction_is_written_once_however_many_processes_have_it(tmp_path: Path) -> None:
    (sample,) = samples(1)
    path = tmp_path / "r"
    every = {ProcessKey("h", "GPU-0", pid, None): predicted() for pid in range(1, 500)}
    assert write(path, (sample, every)).predictions.at(100.0) == every
    assert path.read_bytes().count(b'{"prediction":') == 1


def test_stepping_through_sizes_for_ever_stays_bounded(tmp_path: Path) -> None:
    found = predicted()
    key = ProcessKey("h", "GPU-0", 1, None)
    path = tmp_path / "r"
    sample = samples(1)[0]

    def tick(number: int) -> tuple[Sample, dict[ProcessKey, Prediction]]:
        device = msgspec.structs.replace(DEVICE, total_memory=number)
        return (
            msgspec.structs.replace(sample, taken_at=float(number)),
            {key: msgspec.structs.replace(found, device=device)},
        )

    recording = write(path, *(tick(number) for number in range(MOST_PREDICTIONS + 50)))
    assert len(recording.predictions.every()) == MOST_PREDICTIONS


def test_a_number_that_stands_for_nothing_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r"
    (sample,) = samples(1)
    write(path, (sample, {}))
    with path.open("ab") as file:
        file.write(
            b'{"matched":{"at":1.0,"processes":'
            b'[{"host":"h","gpu_uuid":"g","pid":1,"started_at":null,"prediction":3}]}}\n'
        )
    (warning,) = read_recording(path).warnings
    assert "line 3 is damaged: there is no prediction 3 before it" in warning


def test_what_a_newer_version_adds_to_a_workload_is_passed_over(tmp_path: Path) -> None:
    """Presets refuse what they do not know; the same tables in a recording were written by a program."""
    (sample,) = samples(1)
    one = key_of(sample, sample.gpus[0].processes[0])
    path = tmp_path / "r"
    write(path, (sample, {one: predicted()}))
    newer = path.read_bytes().replace(b'"workload":{"model":{', b'"workload":{"fleet":1,"model":{"rotors":[2],', 1)
    path.write_bytes(newer.replace(b'"estimate":{', b'"estimate":{"sure":true,'))
    assert read_recording(path).predictions.at(100.0) == {one: predicted()}


def test_a_model_of_a_newer_version_costs_its_prediction_alone(tmp_path: Path) -> None:
    (sample,) = samples(1)
    one = key_of(sample, sample.gpus[0].processes[0])
    path = tmp_path / "r"
    write(path, (sample, {one: predicted()}))
    kind = PRESETS[0].preset.model.__struct_config__.tag
    path.write_bytes(path.read_bytes().replace(f'"kind":"{kind}"'.encode(), b'"kind":"hologram"', 1))
    recording = read_recording(path)
    assert (len(recording.samples), recording.predictions.at(100.0)) == (1, {})
    assert "of a kind that this version does not know" in recording.warnings[0]
