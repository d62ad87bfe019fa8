"""Architectures of transformers 5.23 by their default configs, against the modules on the meta device."""

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.loaded_once import bundled_presets
from tests.recorded.architectures import KINDS, REASONS, TOKENS, WINDOW, all_checked, page, preset_from, recorded
from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import TransformerModel
from vramtui.estimators.analytic import parameter_count
from vramtui.estimators.analytic.sizes.precision import state_bytes
from vramtui.models.families.encoders import FOLLOWED, followed_encoder
from vramtui.models.families.families import FAMILIES
from vramtui.models.readers.bounded import decode_object
from vramtui.models.shapes.known import filled_in, shape_table
from vramtui.models.shapes.nets import JOINED, STREAMS, TEXTS
from vramtui.models.specs.decoder import decoder_spec

ROOT = Path(__file__).parents[3]
# The least share of each kind that is answered, and whose parameters are equal.
LEAST = {
    "causal": (0.97, 0.97), "image-text": (0.97, 0.95), "audio-text": (0.97, 0.97), "masked": (0.97, 0.97),
    "speech": (0.97, 0.90), "ctc": (0.97, 0.97), "image-classes": (0.95, 0.95), "zero-shot-images": (0.97, 0.97),
    "segmentation": (0.85, 0.85), "depth": (0.85, 0.85), "detection": (0.7, 0.7), "mask-generation": (0.85, 0.85),
    "text-embedding": (0.97, 0.97), "ranking": (0.97, 0.95),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(KINDS))
def test_models_are_answered_and_equal(kind: str) -> None:
    found = [one for one in all_checked(kind) if one.verdict != "unbuilt"]
    verdicts = Counter(one.verdict for one in found)
    answered, equal = LEAST[kind]
    assert (len(found) - verdicts["refused"]) / len(found) >= answered
    assert verdicts["equal"] / len(found) >= equal
    assert {one.model_type for one in found if one.verdict != "equal"} == set(REASONS[kind])


@pytest.mark.slow
def test_the_page_of_models_is_made_from_these_and_no_refusal_names_another() -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert text.split("<!-- models -->\n")[1].split("\n<!-- /models -->")[0] == "\n".join(page())
    refused = [one for kind in KINDS for one in all_checked(kind) if one.verdict == "refused"]
    assert all("did you mean" not in one.reason for one in refused)


# Types of models of several parts whose words are read by a part of the same type.
WORDS_OF_THE_SAME_TYPE = {"git", "kyutai_speech_to_text"}


def test_a_type_of_model_has_one_reader_and_infinity_is_read() -> None:
    readers = (FAMILIES, TEXTS, STREAMS, JOINED)
    counts = Counter(kind for types in readers for kind in types)
    assert {kind for kind, count in counts.items() if count > 1} == WORDS_OF_THE_SAME_TYPE
    assert decode_object(b'{"time_step_limit": [0.0, Infinity], "x": NaN, "hidden_size": 8}') is not None
    assert decode_object(b"[Infinity]") is None
    assert decode_object(b"[" * 100_000) is None
    config = _default_config("LongcatFlashForCausalLM")
    begun = time.thread_time()
    with pytest.raises(UserError, match="1 to 4096 are needed"):
        preset_from({**config, "num_layers": (1 << 63) - 1})
    assert time.thread_time() - begun < 1


# The classes of encoders' types whose every operator is followed, of those whose shapes are generated.
FOLLOWED_CLASSES = {
    "BartForConditionalGeneration", "BertForMaskedLM", "BertForSequenceClassification", "BertModel", "CLIPTextModel",
    "CLIPTextModelWithProjection", "CLIPVisionModel", "CLIPVisionModelWithProjection", "MT5ForConditionalGeneration",
    "RobertaForMaskedLM", "RobertaForSequenceClassification", "RobertaModel", "T5ForConditionalGeneration",
    "ViTForImageClassification", "ViTModel", "WhisperForConditionalGeneration", "XLMRobertaForMaskedLM",
    "XLMRobertaForSequenceClassification", "XLMRobertaModel",
}  # fmt: skip


def _usual(name: str) -> dict[str, Any]:
    kind = shape_table().type_of(name)
    return filled_in({"model_type": kind, "architectures": [name]}, kind)


def test_encoders_and_bundled_presets_are_read_by_their_shapes_and_tensors() -> None:
    """What is said of its operators stands only where it comes to the tensors of its class."""
    table = shape_table()
    names = [name for name in table.names() if table.type_of(name) in FOLLOWED]
    assert {name for name in names if followed_encoder(_usual(name)) is not None} == FOLLOWED_CLASSES & set(names)
    for name in FOLLOWED_CLASSES & set(names):
        for changes in ({}, {"num_hidden_layers": 7, "num_layers": 7, "encoder_layers": 7, "vocab_size": 1001}):
            values = _usual(name) | {key: value for key, value in changes.items() if key in _usual(name)}
            counted = parameter_count(preset_from(values).model)
            assert counted == sum(one.count * math.prod(one.shape) for one in table.tensors(name, values)), name
    made = {row["preset"]: preset_from(row["config"]) for row in PUBLIC if "preset" in row}
    listed = {
        key for key, found in BUNDLED.items() if isinstance(found.model, TransformerModel) and found.model.tensors
    }
    assert listed == set(made)
    assert {key: BUNDLED[key].model for key in listed} == {key: preset.model for key, preset in made.items()}


@pytest.mark.parametrize(
    ("name", "changes"),
    [("ViTForImageClassification", {"qkv_bias": False}), ("WhisperForConditionalGeneration", {"decoder_ffn_dim": 100})],
)
def test_an_encoder_with_operators_of_its_own_has_the_tensors_of_its_shapes(name: str, changes: dict[str, Any]) -> None:
    values = _usual(name) | changes
    assert followed_encoder(values) is None
    tensors = shape_table().tensors(name, values)
    assert parameter_count(preset_from(values).model) == sum(one.count * math.prod(one.shape) for one in tensors)


PUBLIC = recorded("public")


@pytest.mark.parametrize("row", PUBLIC, ids=[row["name"] for row in PUBLIC])
def test_public_models_have_the_parameters_of_the_module(row: dict[str, Any]) -> None:
    """Configs as public models have them, with the keys that their files leave out.

    Where `card` stands beside it, transformers 5 ties an output layer that the checkpoint, written for transformers 4,
    has of its own, as the model's card counts it, or transformers does not have the model.
    """
    counted = parameter_count(preset_from(row["config"]).model)
    assert counted in (
        {row["card"]} if "card" in row else {row["parameters"], row["parameters"] + row["router_buffers"]}
    )


BUNDLED = {found.key: found.preset for found in bundled_presets()}


def test_layers_that_slide_by_letters_or_lists_and_deepseek_v4_before_its_list() -> None:
    """EXAONE 4 says LLLG; Step 3.5 lists layers that predict a second token behind the others."""
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1000}
    exaone = sizes | {"model_type": "exaone4", "num_hidden_layers": 8, "sliding_window": 64, "intermediate_size": 256}
    slides = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]
    step = exaone | {"model_type": "step3p5", "num_hidden_layers": 6, "layer_types": slides * 2}
    step |= {"moe_layers_enum": "2,3,4,5", "moe_num_experts": 4, "moe_top_k": 2, "share_expert_dim": 64}
    for config, slide in ((exaone | {"sliding_window_pattern": "LLLG"}, 6), (step, 4)):
        model = preset_from(config).model
        assert isinstance(model, TransformerModel)
        kept = {kind.window: kind.layers for kind in model.caches}
        assert kept == {64: slide, None: 2}
    # Its configs on the hub say how many layers choose their experts by a hash, or nothing of it.
    whole = _default_config("DeepseekV4ForCausalLM")
    listed = whole.pop("mlp_layer_types")
    counts = [
        parameter_count(preset_from({**whole, **said}).model)
        for said in ({"mlp_layer_types": listed}, {}, {"num_hash_layers": 3}, {"num_hash_layers": 5})
    ]
    assert counts[0] == counts[1] == counts[2]
    assert counts[2] - counts[3] == 2 * whole["n_routed_experts"]
    assert parameter_count(preset_from({**whole, "mlp_layer_types": listed[:1]}).model) > 0


@pytest.mark.parametrize("kind", list(KINDS))
def test_no_count_that_is_off_is_called_exact(kind: str) -> None:
    for row, one in zip(recorded(kind), all_checked(kind), strict=True):
        if one.verdict == "near":
            preset = preset_from(row["config"])
            family = isinstance(preset.model, TransformerModel) and preset.model.basis == "family"
            assert not family, one


# Caches that are off, each with why.
CACHE_REST = {
    "deepseek_v4": "tokens that wait to be compressed are counted as many as ever wait",
    "cpmant": "its prompt's tokens are kept as well",
    "florence2": "its decoder begins with a token of its own beside those of the prompt",
    "xlstm": "its states' type follows what torch makes by default",
    # Their tensors are of the generated shapes, and what they keep of a sequence is a guess.
    "inkling2": "the state of its convolutions",
    "inkling2_text": "the state of its convolutions",
    "inkling_mm_model": "the state of its convolutions",
    "inkling_text": "the state of its convolutions",
    "zaya": "the state of its convolutions",
}


def _cut(config: dict[str, Any]) -> dict[str, Any]:
    windows = ("sliding_window", "attention_chunk_size")
    changed: dict[str, Any] = {name: WINDOW for name in windows if isinstance(config.get(name), int)}
    words = config.get("text_config")
    return config | changed | ({"text_config": _cut(words)} if isinstance(words, dict) else {})


def _default_config(architecture: str) -> dict[str, Any]:
    rows = recorded("causal")
    return next(dict(row["config"]) for row in rows if architecture in row.get("config", {}).get("architectures", ()))


def cache_of(config: dict[str, Any]) -> int:
    """Bytes that our list of caches gives after TOKENS tokens in bf16; a sliding layer holds one less than it sees."""
    model = preset_from(_cut(config)).model
    assert isinstance(model, TransformerModel)
    total = 0
    for kind in decoder_spec(model).caches():
        kept = TOKENS if kind.window is None else min(TOKENS, kind.window - 1)
        total += kind.layers * (kept * kind.per_token * 2 + state_bytes(kind, 2))
    return total


@pytest.mark.parametrize(("kind", "least"), [("causal", 153), ("image-text", 63)])
def test_caches_of_known_families_are_those_of_transformers(kind: str, least: int) -> None:
    """The bytes that transformers' own cache holds after a forward pass of the default config on the meta device."""
    unequal, equal, recorded_types = set(), 0, set()
    for row in recorded(kind):
        if "cache_bytes" not in row or row["type"] in REASONS[kind]:
            continue
        recorded_types.add(row["type"])
        if cache_of(row["config"]) == row["cache_bytes"]:
            equal += 1
        else:
            unequal.add(row["type"])
    assert unequal == set(CACHE_REST) & recorded_types
    assert equal >= least
