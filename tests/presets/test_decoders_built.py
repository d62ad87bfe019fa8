"""Bundled decoders have as many parameters as transformers builds from the sizes that were published for them."""

from typing import Any

import pytest

from tests.loaded_once import Module, bundled_presets
from tests.tables import rows
from vramtui.core.schema.models import TransformerModel

torch, transformers = Module("torch"), Module("transformers")

BUNDLED = {found.key: found.preset for found in bundled_presets()}
# Those that list their tensors are held to the module in tests/models/readers/test_architectures.py.
DECODERS = {
    key: found.model
    for key, found in BUNDLED.items()
    if isinstance(found.model, TransformerModel) and not found.model.tensors
}

SIZES = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size"),
    "vocab_size",
)
LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
# By the beginning of the preset's key: transformers' model, and what its published config.json says: the sizes in their
# order, the other keys ("none" stands for None), and no tied embeddings where nothing is said of them.
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    name: (
        architecture,
        ({"tie_word_embeddings": False} if sizes else {})
        | dict(zip(SIZES, sizes, strict=False))
        | (LATENT if "q_lora_rank" in more else {})
        | {key: None if value == "none" else value for key, value in more.items()},
    )
    for name, architecture, sizes, more in rows(__file__, "published")
}
OWN = {"tiny-gpt"}  # a model of this project's own
BUFFERS = ("e_score_correction_bias",)  # numbers of the checkpoint that transformers keeps as buffers


def published(key: str) -> str:
    return max((name for name in PUBLISHED if key == name or key.startswith(f"{name}-")), key=len)


def test_each_of_them_stands_for_a_preset() -> None:
    assert {published(key) for key in DECODERS if key not in OWN} == set(PUBLISHED)


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_as_many_parameters_as_transformers_builds(name: str) -> None:
    architecture, said = PUBLISHED[name]
    kind = getattr(transformers, architecture)
    with torch.device("meta"):
        built = kind(kind.config_class(**said))
    buffers = (buffer for at, buffer in built.named_buffers() if at.endswith(BUFFERS))
    count = sum(tensor.numel() for tensor in (*built.parameters(), *buffers))
    presets = {key: model.parameters for key, model in DECODERS.items() if key not in OWN and published(key) == name}
    assert presets == dict.fromkeys(presets, count)
