"""What a matched job leaves open, and whether its estimate may stand beside what is seen of it."""

import msgspec

from tests.loaded_once import bundled_presets
from tests.tables import for_each
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.core.estimate.assumptions import Range, range_of, values_of, words_of
from vramtui.core.estimate.devices import Device, card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.importers.derived import derived_preset

H100 = card("H100")
ALL = ("run.batch_size", "run.sequence_length", "run.precision", "run.lora", "run.checkpointing")


def ask(workload: Workload, device: Device) -> Estimate | None:
    try:
        return ANALYTIC.estimate(workload, device)
    except UserError:
        return None


def span(found: PresetFile | None, device: Device = H100) -> Range:
    assert found is not None
    answer = range_of(found, device, ask)
    assert answer is not None
    return answer


def test_a_bare_command_line_is_a_range_and_no_prediction() -> None:
    """It stood there as 512.7 GiB of a job that holds 33.3."""
    found = span(derived_preset("python3 train.py --model llama-7b --batch-size 32", None))
    assert not found.is_prediction
    assert not found.may_alert
    assert found.lowest < 33 * GIB < found.highest
    assert found.weights is not None
    assert found.weights[1] == "bf16"
    assert 12.5 < found.weights[0] / GIB < 12.7
    unknown = "sequence, precision, LoRA and checkpointing are not on the command line"
    assert found.sentence == f"cannot be predicted: {unknown}"  # more than three times as much is no answer
    near = msgspec.structs.replace(found, highest=2 * found.lowest)
    assert near.sentence.startswith("training 2")
    assert near.sentence.endswith(unknown)
    assert found.place_of(33 * GIB) == "within the range"
    assert found.place_of(5 * GIB).startswith("below")
    assert found.is_refuted_by(2 * found.highest)


def test_what_all_is_said_of_is_a_prediction() -> None:
    found = derived_preset(
        "python run_clm.py --model_name_or_path gpt2-xl --per_device_train_batch_size 8 --block_size 1024 --do_train"
        " --bf16",
        None,
    )
    assert found is not None
    assert set(found.assumed) <= {"model"}
    assert getattr(found.preset.run, "checkpointing", None) == "none", "a Trainer has none unless it is told"
    answer = range_of(found, H100, ask)
    assert answer is None or answer.may_alert


def test_of_a_script_of_peoples_own_it_is_not_known_whether_it_trains() -> None:
    found = span(derived_preset("python app.py --model stabilityai/stable-diffusion-xl-base-1.0", None))
    assert found.doing == "generation or training"
    assert not found.is_prediction
    assert "which of these" in found.sentence


@for_each(bundled_presets()[::7])
def test_the_ends_of_a_range_hold_the_estimate(found: PresetFile) -> None:
    keys = tuple(key for key in ALL if key.removeprefix("run.") in found.preset.run.__struct_fields__)
    for count in range(1, len(keys) + 1):
        answer = range_of(msgspec.structs.replace(found, assumed=keys[:count]), H100, ask)
        if answer is None:
            assert ask(found.preset.workload, H100) is None
            return
        assert answer.lowest <= answer.estimate <= answer.highest
        assert answer.is_prediction or not answer.may_alert
        assert values_of(msgspec.structs.replace(found, assumed=keys[:count]))
    assert range_of(found, H100, ask) is None, "nothing of it is assumed"


def test_a_guess_that_its_card_has_no_room_for_is_refuted_by_running() -> None:
    found = derived_preset("python3 train.py --model llama-7b --batch-size 32 --bf16", None)
    assert found is not None
    close = msgspec.structs.replace(found, assumed=("run.lora.rank",))
    assert span(close, Device(name="", capability=(9, 0), total_memory=1 << 50)).is_prediction
    assert not span(close).is_prediction


def test_settings_are_named() -> None:
    assert words_of(("run.sequence_length", "run.lora")) == "sequence and LoRA"
    assert words_of(("run.lora",)) == "LoRA"
    assert words_of(ALL) == "batch, sequence, precision, LoRA and checkpointing"
