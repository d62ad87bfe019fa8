"""What a recorded run has beside its samples."""

from tests.app import moments
from tests.app.stand_ins import PRESETS
from vramtui.cli.run.recorded_predictions import RunRecorded
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.presets import PresetLibrary


def test_the_jobs_own_processes_have_their_presets_prediction() -> None:
    found = PresetLibrary().get("gpt2-124m")
    job = ObservedJob(pid=4213)
    jobs, predictions = RunRecorded(lambda: (job,), found).of(moments.usual())
    assert jobs == (job,)
    assert [key.pid for key in predictions] == [4213]
    (prediction,) = predictions.values()
    assert prediction.preset == "gpt2-124m"
    assert prediction.workload == found.preset.workload
    assert prediction.estimate.process > 0


def test_without_a_preset_there_are_its_words_alone() -> None:
    assert RunRecorded(lambda: (ObservedJob(pid=4213),), None).of(moments.usual())[1] == {}


def test_other_processes_are_left_out() -> None:
    assert RunRecorded(lambda: (), PRESETS[0]).of(moments.usual()) == ((), {})
