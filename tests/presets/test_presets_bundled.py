import re
from math import prod
from pathlib import Path

import pytest

from tests.loaded_once import bundled_library, bundled_presets
from tests.tables import for_each, rows
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.observation.matcher import matches
from vramtui.core.observation.readings import Gpu, Process
from vramtui.core.schema.models import TorchModel, TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.estimators.methods import estimates_by

LIBRARY = bundled_library()
GPU = Gpu(index=0, uuid="GPU-0", name="NVIDIA H100")
BUNDLED = bundled_presets()
RUN_TO_BE_KNOWN = (TorchModel,)
MODELS = [found for found in BUNDLED if not isinstance(found.preset.model, RUN_TO_BE_KNOWN)]

FIRST_TEN = {
    "gpt2-124m", "gpt2-1.5b", "llama-3.1-8b-infer", "llama-3.1-8b-full", "llama-3.1-8b-lora", "llama-3.1-70b-infer",
    "qwen-2.5-7b", "gemma-2-27b-lora", "mistral-7b", "tiny-gpt",
}  # fmt: skip

# What the model cards, or the checkpoints' own tensors, say; a preset's key begins with the model's.
CARDS = dict(rows(__file__, "cards"))


def parameters(model: TransformerModel) -> int:
    if model.tensors:
        return sum(prod(group.shape) * group.count for group in model.tensors)
    hidden = model.hidden_size
    norm = hidden * (2 if model.norm == "layernorm" else 1)
    blocks = sum(
        attention_parameters(model) + mlp_parameters(model, layer) + model.norms_per_layer * norm
        for layer in range(model.num_hidden_layers)
    )
    positions = hidden * (model.max_position_embeddings or 0) * (model.position == "learned")
    embeddings = model.vocab_size * hidden * (1 if model.tie_word_embeddings else 2)
    return blocks + norm + positions + embeddings + model.vocab_size * model.lm_head_bias


def attention_parameters(model: TransformerModel) -> int:
    hidden, heads = model.hidden_size, model.num_attention_heads
    if model.kv_lora_rank is not None:
        nope, rope, values = model.qk_nope_head_dim or 0, model.qk_rope_head_dim or 0, model.v_head_dim or 0
        rank, compressed = model.q_lora_rank, model.kv_lora_rank
        wide = heads * (nope + rope)
        queries = hidden * wide if rank is None else hidden * rank + rank + rank * wide
        keys = hidden * (compressed + rope) + compressed + compressed * heads * (nope + values)
        return queries + keys + heads * values * hidden
    queries, keys = heads * model.head_size, model.kv_heads * model.head_size
    biases = (queries + 2 * keys) * model.attention_bias + hidden * model.output_bias
    return 2 * hidden * queries + 2 * hidden * keys + biases + 2 * model.head_size * model.qk_norm


def mlp_parameters(model: TransformerModel, layer: int) -> int:
    hidden, inner = model.hidden_size, 2 if model.gated_mlp else 1
    if model.num_experts is None or layer < model.first_k_dense_replace:
        width = model.ffn_size
        return (inner + 1) * hidden * width + (inner * width + hidden) * model.mlp_bias
    widths = model.num_experts * model.expert_size + model.shared_size
    router = model.num_experts * (hidden + model.router_bias) + hidden * model.shared_expert_gate
    return (inner + 1) * hidden * widths + router


@for_each(MODELS)
def test_every_model_can_be_estimated(found: PresetFile) -> None:
    """Warnings are errors here, so none is given either; and the estimator's own count is the card's."""
    estimate = ANALYTIC.estimate(found.preset.workload, card("H100"))
    assert 0 < (estimate.allocated or 0) <= (estimate.reserved or 0) < estimate.process
    model = found.preset.model
    if isinstance(model, TransformerModel):
        assert parameter_count(model) == model.parameters


def test_none_is_broken_and_there_is_one_of_each_kind() -> None:
    assert LIBRARY.problems == ()
    assert {found.key for found in BUNDLED} >= FIRST_TEN
    kinds = {type(found.preset.model): found for found in BUNDLED if isinstance(found.preset.model, RUN_TO_BE_KNOWN)}
    assert set(kinds) == set(RUN_TO_BE_KNOWN)
    for found in kinds.values():
        assert found.key.endswith("-traced")
        assert "vramtui dry-run" in Path(found.path).read_text(encoding="utf-8")
        with pytest.raises(UserError, match=r"is code, not a model: vramtui dry-run --gpu GPU .*tiny_mlp.py"):
            estimates_by(None, found.preset.workload, card("H100"))


@for_each(BUNDLED)
def test_the_parameter_count_is_exact(found: PresetFile) -> None:
    model = found.preset.model
    if isinstance(model, TransformerModel):
        assert model.parameters == parameters(model)
    if not isinstance(model, RUN_TO_BE_KNOWN):
        key = max((key for key in CARDS if found.key == key or found.key.startswith(f"{key}-")), key=len)
        assert getattr(model, "parameters", None) == CARDS[key]


@for_each(BUNDLED)
def test_people_can_tell_what_it_is(found: PresetFile) -> None:
    assert found.preset.name
    assert found.preset.notes.endswith(".")
    assert re.fullmatch(r"[a-z0-9.-]+", found.key)


@for_each(rows(__file__, "commands_find_their_preset_and_no_other"))
def test_commands_find_their_preset_and_no_other(command: str, keys: list[str]) -> None:
    rules = {found.key: found.preset.match for found in BUNDLED if found.preset.match}
    process = Process(pid=1, type="C", command=command)
    assert [key for key, match in rules.items() if matches(match, GPU, process)] == keys
