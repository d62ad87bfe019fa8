from typing import Any

import pytest

from tests.recorded.architectures import KINDS, REASONS, preset_from, recorded
from tests.tables import rows
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import SequentialModel, TransformerModel
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.models.readers.config_json import parse_config
from vramtui.models.shapes.nets import is_net

THOUSAND = {str(number): f"LABEL_{number}" for number in range(1000)}
# As public files have them, with the numbers of parameters that their safetensors files hold.
PUBLIC: dict[str, tuple[dict[str, Any], int]] = {
    name: (config | ({"id2label": THOUSAND} if "ForImageClassification" in config["architectures"][0] else {}), count)
    for name, count, config in rows(__file__, "public")
}


@pytest.mark.parametrize("name", list(PUBLIC))
def test_parameters_are_those_that_are_published(name: str) -> None:
    config, published = PUBLIC[name]
    assert parameter_count(preset_from(config).model) == published


# Whose parts have other defaults than these have alone; published files say their sizes.
PARTS_OF_THEIR_OWN = {"canary", "cohere_asr", "depth_anything", "zoedepth"}
BARE = [
    row
    for kind in KINDS
    for row in recorded(kind)
    if is_net(row["type"]) and "parameters" in row and row["type"] not in {*REASONS[kind], *PARTS_OF_THEIR_OWN}
]


@pytest.mark.parametrize("row", BARE, ids=[f"{row['architecture']}" for row in BARE])
def test_keys_that_a_file_leaves_out_are_those_of_transformers(row: dict[str, Any]) -> None:
    bare = {"model_type": row["type"], "architectures": [row["architecture"]]}
    assert parameter_count(preset_from(bare).model) == row["parameters"]


def test_an_encoder_of_images_by_its_patches_stages_and_heads() -> None:
    preset = preset_from(PUBLIC["facebook/dinov2-large"][0])
    assert isinstance(preset.model, TransformerModel)
    assert isinstance(preset.run, InferRun)
    assert (preset.run.sequence_length, preset.run.new_tokens) == (37 * 37 + 1, 0)
    assert preset.model.caches == ()
    changed = PUBLIC["facebook/convnext-tiny-224"][0] | {"depths": [3, 3, 10, 3]}
    preset = preset_from(changed)
    assert preset.notes.startswith("Generic")
    assert parameter_count(preset.model) == 28_589_128 + 1_201_920
    config = PUBLIC["facebook/dinov2-large"][0] | {"architectures": ["Dinov2ForPose"]}
    assert parse_config(config).basis == "generic"
    flash = {"model_type": "deepseek_ref", "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 4096}
    assert parse_config(flash).basis == "family"
    glm = {"model_type": "chatglm", "architectures": ["ChatGLMModel"], "hidden_size": 4096, "num_layers": 28}
    glm |= {"num_attention_heads": 32, "vocab_size": 130528, "inner_hidden_size": 16384}
    assert [parse_config(glm | more).basis for more in ({}, {"ffn_hidden_size": 13696})] == ["generic", "family"]
    wav2vec = preset_from(PUBLIC["facebook/wav2vec2-large-xlsr-53 with 32 letters"][0])
    assert wav2vec.notes.startswith("Generic: every tensor of a config of Wav2Vec2ForCTC")
    found = ANALYTIC.estimate(wav2vec.workload, card("H100"))
    assert found.assumptions[0].startswith("generic: every tensor is counted")


@pytest.mark.parametrize("name", [name for name in PUBLIC if "convnext" in name or "swin" in name or "resnet" in name])
def test_a_net_of_torchvisions_sizes_has_its_layers(name: str) -> None:
    assert isinstance(preset_from(PUBLIC[name][0]).model, SequentialModel)
