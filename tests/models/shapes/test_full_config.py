"""What configs leave out: as transformers fills it in, and the parts of parts with it."""

import dataclasses
from typing import Any

import pytest

from vramtui.models.shapes.known import defaults_of, filled_in


def test_parts_are_filled_in_by_their_own_types_and_others_are_left_as_they_are() -> None:
    whole = filled_in({"text_config": {"hidden_size": 96}, "audio_config": {}}, "clap")
    assert whole["text_config"]["model_type"] == "clap_text_model"
    assert whole["text_config"]["hidden_size"] == 96
    assert whole["text_config"]["num_hidden_layers"] == 12
    assert whole["audio_config"]["patch_embeds_hidden_size"] == 96
    values = {"model_type": "nobodys", "hidden_size": 8, "text_config": {"model_type": "llama"}}
    whole = filled_in(values, "nobodys")
    assert {key: whole[key] for key in ("model_type", "hidden_size")} == {"model_type": "nobodys", "hidden_size": 8}
    assert whole["text_config"]["hidden_size"] == 4096


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["bert", "clip_vision_model", "gemma3_text", "llama", "qwen3_moe", "whisper"])
def test_defaults_are_those_of_transformers(kind: str) -> None:
    mapping = pytest.importorskip("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    usual: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(mapping[kind])}
    keys = defaults_of(kind).keys
    assert keys.keys() <= usual.keys()
    assert {key: list(usual[key]) if isinstance(usual[key], tuple) else usual[key] for key in keys} == keys
