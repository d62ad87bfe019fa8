"""The presets that come with the program: all load, under unique names, and match what they should."""

import re

import pytest

from vramtui.core.devices import card
from vramtui.core.models import RuleModel, TransformerModel
from vramtui.core.preset import PresetFile
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.presets import PresetLibrary
from vramtui.presets.library import bundled_folder

LIBRARY = PresetLibrary(bundled_folder() / "nothing-of-a-user")
BUNDLED = LIBRARY.all()
MODELS = [found for found in BUNDLED if not isinstance(found.preset.model, RuleModel)]

FIRST_TEN = {
    "gpt2-124m",
    "gpt2-1.5b",
    "llama-3.1-8b-infer",
    "llama-3.1-8b-full",
    "llama-3.1-8b-lora",
    "llama-3.1-70b-infer",
    "qwen-2.5-7b",
    "gemma-2-27b-lora",
    "mistral-7b",
    "tiny-gpt",
}

# What the model cards, or the checkpoints' own tensors, say; a preset's key begins with the model's.
CARDS = {
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "gemma-3-27b": 27_009_346_304,
    "gpt-neox-20b": 20_554_567_680,
    "gpt2-1.5b": 1_557_611_200,
    "gpt2-124m": 124_439_808,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "phi-3-mini": 3_821_079_552,
    "phi-4-14b": 14_659_507_200,
    "qwen-2.5-0.5b": 494_032_768,
    "qwen-2.5-14b": 14_770_033_664,
    "qwen-2.5-32b": 32_763_876_352,
    "qwen-2.5-72b": 72_706_203_648,
    "qwen-2.5-7b": 7_615_616_512,
    "qwen-3-0.6b": 596_049_920,
    "qwen-3-32b": 32_762_123_264,
    "qwen-3-8b": 8_190_735_360,
    "tiny-gpt": 4_870_144,
}


def parameters(model: TransformerModel) -> int:
    """Counted tensor by tensor, as a second opinion on the estimator's own count."""
    hidden, width = model.hidden_size, model.ffn_size
    queries, keys = model.num_attention_heads * model.head_size, model.kv_heads * model.head_size
    norm = hidden * (2 if model.norm == "layernorm" else 1)
    attention = 2 * hidden * queries + 2 * hidden * keys
    attention += (queries + 2 * keys) * model.attention_bias + hidden * model.output_bias
    attention += 2 * model.head_size * model.qk_norm
    inner = 2 if model.gated_mlp else 1
    mlp = (inner + 1) * hidden * width + (inner * width + hidden) * model.mlp_bias
    positions = hidden * (model.max_position_embeddings or 0) * (model.position == "learned")
    embeddings = model.vocab_size * hidden * (1 if model.tie_word_embeddings else 2)
    layers = model.num_hidden_layers * (attention + mlp + model.norms_per_layer * norm)
    return layers + norm + positions + embeddings


@pytest.mark.parametrize("found", MODELS, ids=lambda found: found.key)
def test_every_model_can_be_estimated(found: PresetFile) -> None:
    """Warnings are errors here, so none is given either; and the estimator's own count is the card's."""
    estimate = ANALYTIC.estimate(found.preset.workload, card("H100"))
    assert 0 < (estimate.allocated or 0) <= (estimate.reserved or 0) < estimate.process
    model = found.preset.model
    if isinstance(model, TransformerModel):
        assert parameter_count(model) == model.parameters


def test_none_is_broken_and_no_name_stands_twice() -> None:
    assert LIBRARY.problems == ()
    assert {found.key for found in BUNDLED} >= FIRST_TEN


@pytest.mark.parametrize("found", BUNDLED, ids=lambda found: found.key)
def test_the_parameter_count_is_exact(found: PresetFile) -> None:
    model = found.preset.model
    if isinstance(model, TransformerModel):
        assert model.parameters == parameters(model)
    if not isinstance(model, RuleModel):
        (card_says,) = [count for key, count in CARDS.items() if found.key == key or found.key.startswith(f"{key}-")]
        assert getattr(model, "parameters", None) == card_says


@pytest.mark.parametrize("found", BUNDLED, ids=lambda found: found.key)
def test_people_can_tell_what_it_is(found: PresetFile) -> None:
    assert found.preset.name
    assert found.preset.notes.endswith(".")
    assert re.fullmatch(r"[a-z0-9.-]+", found.key)


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("python train.py --model meta-llama/Llama-3.1-8B --lora --batch 4", ["llama-3.1-8b-lora"]),
        ("python train.py --model meta-llama/Meta-Llama-3.1-8B-Instruct", ["llama-3.1-8b-full"]),
        ("vllm serve Qwen/Qwen2.5-7B-Instruct --gpu-memory-utilization 0.30", ["qwen-2.5-7b"]),
        ("python train_gpt2.py --size 124M", ["gpt2-124m"]),
        ("torchrun train_gpt2.py --size=1.5B", ["gpt2-1.5b"]),
        ("python generate.py --model meta-llama/Llama-3.1-70B", ["llama-3.1-70b-infer"]),
        ("python finetune_lora.py google/gemma-2-27b", ["gemma-2-27b-lora"]),
        ("python chat.py mistralai/Mistral-7B-v0.3", ["mistral-7b"]),
        ("python train_tiny_gpt.py", ["tiny-gpt"]),
        ("python train.py", []),
        ("vim llama-3.1-8b.txt", []),
        ("python train_gpt2.py", []),
        ("", []),
    ],
)
def test_commands_find_their_preset_and_no_other(command: str, keys: list[str]) -> None:
    patterns = {found.key: found.preset.match.command for found in BUNDLED if found.preset.match}
    assert [key for key, pattern in patterns.items() if pattern and re.search(pattern, command)] == keys


@pytest.mark.parametrize("found", BUNDLED, ids=lambda found: found.key)
def test_patterns_cannot_be_made_slow_by_a_command_line(found: PresetFile) -> None:
    """Anchored lookaheads of one `.*` each try every position once, whatever another user's command line holds."""
    if found.preset.match is None or found.preset.match.command is None:
        return
    pattern = found.preset.match.command
    assert pattern.startswith("(?i)^(?")
    assert re.fullmatch(r"(\(\?[=!]\.\*(?:[^()*+]|\([^()*+]*\))+\))+", pattern.removeprefix("(?i)^"))
