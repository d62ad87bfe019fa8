import pytest

from tests.examples import SMALL
from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import InferRun, Lora, TrainRun
from vramtui.presets import apply_overrides, parse_preset

PRESET = (
    SMALL.replace("[run]", "parameters = 12345\n[run]")
    + """\
sequence_length = 128
optimizer = "sgd"
[run.lora]
rank = 4
target_modules = ["q_proj"]
[measured]
process = 123
where = "a card"
"""
)


@pytest.fixture
def preset() -> Preset:
    return parse_preset(PRESET, "small.toml")


def train(preset: Preset, *settings: str) -> TrainRun:
    run = apply_overrides(preset, settings).run
    assert isinstance(run, TrainRun)
    return run


def adapters(preset: Preset, *settings: str) -> Lora:
    lora = train(preset, *settings).lora
    assert lora is not None
    return lora


def test_values_take_the_type_of_the_key_and_another_kind_of_run_goes_first(preset: Preset) -> None:
    assert train(preset, "run.batch_size=8").batch_size == 8
    assert train(preset, " run.batch_size = 8 ").batch_size == 8
    assert train(preset, "run.optimizer=adam").optimizer == "adam"
    assert train(preset, 'run.optimizer="adam"').optimizer == "adam"
    assert apply_overrides(preset, ["name=2024"]).name == "2024"
    lora = adapters(preset, 'run.lora.target_modules=["k_proj"]', "run.lora.dropout=0.5")
    assert (lora.rank, lora.target_modules, lora.dropout) == (4, ("k_proj",), 0.5)
    assert train(preset, "run.lora=none").lora is None
    assert train(preset, "run.sequence_length=none").sequence_length is None
    assert train(preset, "run.checkpointing=none").checkpointing == "none"
    bare = apply_overrides(preset, ["run.lora=none"])
    assert adapters(bare, "run.lora.rank=8", 'run.lora.target_modules=["q_proj"]').rank == 8
    assert apply_overrides(preset, []).measured is not None
    assert apply_overrides(preset, ["run.batch_size=8"]).measured is None
    larger = apply_overrides(preset, ["model.num_hidden_layers=3"]).model
    assert isinstance(larger, TransformerModel)
    assert (larger.num_hidden_layers, larger.parameters) == (3, None)
    run = apply_overrides(preset, ["run.kind=infer", "run.new_tokens=7"]).run
    assert isinstance(run, InferRun)
    assert (run.batch_size, run.sequence_length, run.new_tokens) == (2, 128, 7)
    trains = apply_overrides(preset, ["precision=bf16-mixed"])
    run = apply_overrides(trains, ["new_tokens=7", "kind=infer"]).run
    assert isinstance(run, InferRun)
    assert (run.new_tokens, run.precision) == (7, "bf16")
    answers = apply_overrides(trains, ["kind=infer"])
    assert adapters(answers, "lora.rank=4", "lora.target_modules=['q_proj']", "kind=train").rank == 4
    run = train(preset, "batch=3", "seq_len=64", "lora.rank=4", "gradient_checkpointing=true")
    assert (run.batch_size, run.sequence_length, run.checkpointing) == (3, 64, "full")
    assert run.lora.rank == 4
    assert adapters(preset, "rank=5").rank == 5


@pytest.mark.parametrize(
    ("positions", "prompt", "answer", "trained"),
    [(1024, 768, 256, 1024), (2050, 1794, 256, 2048), (4096, 2048, 256, 2048), (4096, 100, 28, 100)],
)
def test_training_takes_positions(preset: Preset, positions: int, prompt: int, answer: int, trained: int) -> None:
    settings = [f"run.sequence_length={prompt}", f"run.new_tokens={answer}", "run.kind=infer"]
    answers = apply_overrides(preset, [f"model.max_position_embeddings={positions}", *settings])
    assert train(answers, "kind=train").sequence_length == trained
    assert train(answers, "kind=train", f"seq_len={prompt}").sequence_length == prompt


@pytest.mark.parametrize(("settings", "sentence"), rows(__file__, "each_mistake_is_one_sentence"))
def test_each_mistake_is_one_sentence(preset: Preset, settings: list[str], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        apply_overrides(preset, settings)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("--set ")
