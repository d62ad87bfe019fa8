"""What a model's sizes may be at most, however they were given."""

import json
from pathlib import Path

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.schema.preset import Preset
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_of
from vramtui.presets.overrides import apply_overrides
from vramtui.presets.reader import find_problems


def preset(key: str) -> Preset:
    found = PresetLibrary().find(key)
    assert found is not None
    return found.preset


@pytest.mark.parametrize("layers", [4097, 10**6, 10**12, 2**63])
def test_more_layers_than_any_model_has_are_refused_by_set(layers: int) -> None:
    with pytest.raises(UserError, match=rf"num_hidden_layers is {layers}; it must be at most 4096"):
        apply_overrides(preset("llama-3.1-8b-full"), [f"num_hidden_layers={layers}"])


def test_sizes_that_are_possible_alone_are_refused_together() -> None:
    with pytest.raises(UserError, match=r"make [\d,]+ parameters; at most"):
        apply_overrides(preset("llama-3.1-8b-full"), ["hidden_size=16777216", "intermediate_size=16777216"])


def test_a_config_is_held_to_the_same(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
        "num_hidden_layers": 10**12, "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"num_hidden_layers = 1000000000000; 1 to 4096 are needed$"):
        preset_of(tmp_path / "config.json", "")


def test_repeated_layers_are_counted_as_often_as_they_stand() -> None:
    layers = "\n".join(
        '[[model.layers]]\ntype = "repeat"\ntimes = 5000\nlayers = [{type = "activation"}]' for _ in "ab"
    )
    text = f'name = "x"\n[model]\nkind = "sequential"\ninput_shape = [8]\n{layers}\n[run]\nkind = "train"\n'
    (problem,) = find_problems(text)
    assert problem.sentence == "model.layers come to 10,000 layers; at most 4,096 are computed"
