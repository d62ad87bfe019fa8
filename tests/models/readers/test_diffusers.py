import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.loaded_once import bundled_presets
from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import Model
from vramtui.estimators.analytic.models.registry import parameter_count
from vramtui.models.readers.config_json import read_config
from vramtui.models.stores.local_models import is_model_file
from vramtui.presets.model_presets import preset_of

BUNDLED = {found.key: found.preset for found in bundled_presets()}
ATTENTION = ["CrossAttnDownBlock2D"]
SD15 = {
    "_class_name": "UNet2DConditionModel", "_diffusers_version": "0.6.0", "act_fn": "silu", "attention_head_dim": 8,
    "block_out_channels": [320, 640, 1280, 1280], "cross_attention_dim": 768,
    "down_block_types": [*ATTENTION * 3, "DownBlock2D"], "up_block_types": ["UpBlock2D", *["CrossAttnUpBlock2D"] * 3],
    "layers_per_block": 2, "sample_size": 64,
}  # fmt: skip
SD21 = SD15 | {"attention_head_dim": [5, 10, 20, 20], "cross_attention_dim": 1024, "use_linear_projection": True}
SDXL = {
    "_class_name": "UNet2DConditionModel", "addition_embed_type": "text_time", "attention_head_dim": [5, 10, 20],
    "block_out_channels": [320, 640, 1280], "cross_attention_dim": 2048,
    "down_block_types": ["DownBlock2D", *ATTENTION * 2],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "mid_block_type": "UNetMidBlock2DCrossAttn", "projection_class_embeddings_input_dim": 2816, "sample_size": 128,
    "transformer_layers_per_block": [1, 2, 10], "use_linear_projection": True,
}  # fmt: skip
FLUX = {
    "_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "guidance_embeds": True, "in_channels": 64,
    "joint_attention_dim": 4096, "num_attention_heads": 24, "num_layers": 19, "num_single_layers": 38,
    "pooled_projection_dim": 768,
}  # fmt: skip


def _at(folder: Path, config: dict[str, Any], name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(config))
    return folder / name


def _count(path: Path) -> int:
    model: Model = msgspec.convert(read_config(path).model, Model)
    return parameter_count(model)


@pytest.mark.parametrize(
    ("config", "preset"),
    [(SD15, "sd-1.5-train"), (SD21, "sd-2.1-infer"), (SDXL, "sdxl-infer"), (FLUX, "flux-dev-infer")],
    ids=["SD 1.5", "SD 2.1", "SDXL", "FLUX"],
)
def test_as_many_parameters_as_published(config: dict[str, Any], preset: str, tmp_path: Path) -> None:
    path = _at(tmp_path, config)
    assert _count(path) == BUNDLED[preset].model.parameters
    assert preset_of(path).run.batch_size == 1


@pytest.mark.parametrize(("part", "config"), [("unet", SDXL), ("transformer", FLUX)])
def test_a_pipeline_is_the_part_on_the_card(part: str, config: dict[str, Any], tmp_path: Path) -> None:
    _at(tmp_path / "model" / part, config)
    index = _at(
        tmp_path / "model", {"_class_name": "Pipeline", part: ["diffusers", "X"], "vae": []}, "model_index.json"
    )
    assert is_model_file(str(tmp_path / "model"))
    assert preset_of(index).model == preset_of(tmp_path / "model").model
    assert _count(index) == _count(tmp_path / "model" / part / "config.json")


@pytest.mark.parametrize(
    ("changes", "said"),
    rows(__file__, "what_is_not_modelled_is_one_sentence"),
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_what_is_not_modelled_is_one_sentence(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as told:
        preset_of(_at(tmp_path, SD15 | changes))
    assert "\n" not in str(told.value)


def test_an_index_without_a_part_that_is_read_and_clip_with_both_towers(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model_index\.json names neither a unet nor a transformer: X"):
        preset_of(_at(tmp_path, {"_class_name": "X", "vae": []}, "model_index.json"))
    with pytest.raises(UserError, match=r"unet/config\.json does not exist"):
        preset_of(_at(tmp_path, {"unet": ["diffusers", "X"]}, "model_index.json"))
    # openai/clip-vit-large-patch14 has 427,616,513 parameters.
    assert _count(_at(tmp_path, CLIP)) == 427_616_513
    text = _at(tmp_path / "text", {"architectures": ["CLIPTextModel"], **CLIP["text_config"]})  # type: ignore[dict-item]  # a table
    assert _count(text) == BUNDLED["clip-vit-l14-text-infer"].model.parameters


CLIP = {
    "architectures": ["CLIPModel"], "model_type": "clip", "projection_dim": 768,
    "text_config": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "vision_config": {"hidden_size": 1024, "intermediate_size": 4096,
                      "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14},
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["Llama4ForConditionalGeneration", "GptOssForCausalLM", "MllamaForConditionalGeneration", "Phi4MMForCausalLM"],
)
def test_what_is_not_read_is_told_with_a_way_to_estimate_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"is of the architecture '{name}'.*model.safetensors` reads") as told:
        preset_of(_at(tmp_path, {"architectures": [name]}))
    assert len(str(told.value)) < 300 + 3 * len(str(tmp_path))
