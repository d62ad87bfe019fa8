"""Diffusion pipelines: each part's parameters as diffusers 0.42 and transformers 5.23 build them, and whose turn peaks.

The counts are those of the modules on the meta device, with the published configs.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.loaded_once import bundled_library
from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import PipelineModel
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import InferRun, Lora, Parallel, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.models.registry import parameter_count
from vramtui.models.families.keys import Fields
from vramtui.models.readers.diffusers import read_encoder, read_vae
from vramtui.presets.model_presets import preset_of
from vramtui.presets.named_presets import preset_named

H100 = Device(name="H100", capability=(9, 0), total_memory=80 * 2**30)
LIBRARY = bundled_library()
CLIP: dict[str, Any] = {
    "model_type": "clip_text_model", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "projection_dim": 768, "vocab_size": 49408,
}  # fmt: skip
BIG = CLIP | {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "projection_dim": 1280}
BIG |= {"num_attention_heads": 20}
T5: dict[str, Any] = {
    "model_type": "t5", "vocab_size": 32128, "d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24,
    "num_heads": 64, "feed_forward_proj": "gated-gelu",
}  # fmt: skip
UMT5 = T5 | {"model_type": "umt5", "vocab_size": 256384}
KL: dict[str, Any] = {"_class_name": "AutoencoderKL", "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2}
KL |= {"sample_size": 1024}
KL16 = KL | {"latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False}
WAN_VAE: dict[str, Any] = {"_class_name": "AutoencoderKLWan"}
WIDE_VAE: dict[str, Any] = {"base_dim": 160, "decoder_base_dim": 256, "z_dim": 48, "is_residual": True, "patch_size": 2}
WIDE_VAE |= WAN_VAE | {"in_channels": 12, "out_channels": 12}
SD3: dict[str, Any] = {
    "_class_name": "SD3Transformer2DModel", "num_layers": 24, "num_attention_heads": 24, "attention_head_dim": 64,
    "caption_projection_dim": 1536, "sample_size": 128,
}  # fmt: skip
MEDIUM = SD3 | {"qk_norm": "rms_norm", "dual_attention_layers": list(range(13)), "pos_embed_max_size": 384}
LARGE = SD3 | {"num_layers": 38, "num_attention_heads": 38, "caption_projection_dim": 2432, "qk_norm": "rms_norm"}
QWEN: dict[str, Any] = {"_class_name": "QwenImageTransformer2DModel", "num_layers": 60}
WAN: dict[str, Any] = {
    "_class_name": "WanTransformer3DModel", "num_layers": 40, "num_attention_heads": 40, "ffn_dim": 13824,
}  # fmt: skip
SMALL_WAN = WAN | {"num_layers": 30, "num_attention_heads": 12, "ffn_dim": 8960}
WIDE_WAN = WAN | {"num_layers": 30, "num_attention_heads": 24, "ffn_dim": 14336, "in_channels": 48, "out_channels": 48}
FLUX: dict[str, Any] = {"_class_name": "FluxTransformer2DModel", "guidance_embeds": True}


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (SD3, 2_028_328_000), (MEDIUM, 2_243_171_520), (LARGE, 8_056_627_520), (QWEN, 20_430_401_088),
        (WAN, 14_288_491_584), (SMALL_WAN, 1_418_996_800), (WIDE_WAN, 4_999_787_712),
    ],
    ids=["SD3 medium", "SD3.5 medium", "SD3.5 large", "Qwen-Image", "Wan 14B", "Wan 1.3B", "Wan 2.2 5B"],
)  # fmt: skip
def test_denoisers_have_the_parameters_of_diffusers(config: dict[str, Any], count: int, at: "Folder") -> None:
    assert parameter_count(preset_of(at.config(config)).model) == count


@pytest.mark.parametrize(
    ("config", "count"),
    [(KL, 83_653_863), (KL16, 83_819_683), (WAN_VAE, 126_892_531), (WIDE_VAE, 704_688_668)],
    ids=["SDXL", "FLUX", "Wan", "Wan 2.2 5B"],
)
def test_vaes_have_as_many_parameters_as_diffusers_builds(config: dict[str, Any], count: int) -> None:
    assert _numbers(read_vae(Fields(config))) == count


@pytest.mark.parametrize(("config", "named", "count"), [
    (CLIP, "CLIPTextModel", 123_060_480),
    (CLIP, "CLIPTextModelWithProjection", 123_650_304),
    (BIG, "CLIPTextModelWithProjection", 694_659_840),
    (T5, "T5EncoderModel", 4_762_310_656),
    (UMT5, "UMT5EncoderModel", 5_680_910_336),
], ids=["CLIP L", "CLIP L projected", "CLIP G", "T5 XXL", "UMT5 XXL"])  # fmt: skip
def test_encoders_have_the_parameters_of_transformers(config: dict[str, Any], named: str, count: int) -> None:
    assert _numbers(read_encoder(Fields(config), named)) == count


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self, values: dict[str, Any], part: str = "") -> Path:
        folder = self.path / part
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(values))
        return folder

    def pipeline(self, named: str, parts: dict[str, tuple[str, dict[str, Any]]]) -> Path:
        index: dict[str, Any] = {"_class_name": named, "image_encoder": [None, None]}
        for part, (cls, values) in parts.items():
            self.config(values, part)
            index[part] = ["transformers" if "encoder" in part else "diffusers", cls]
        (self.path / "model_index.json").write_text(json.dumps(index))
        return self.path


@pytest.fixture
def at(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def _flux(at: Folder) -> Preset:
    parts = {"text_encoder": ("CLIPTextModel", CLIP), "text_encoder_2": ("T5EncoderModel", T5)}
    parts |= {"transformer": ("FluxTransformer2DModel", FLUX), "vae": ("AutoencoderKL", KL16)}
    return preset_of(at.pipeline("FluxPipeline", parts))


def _numbers(part: dict[str, Any]) -> int:
    groups = msgspec.convert(part["tensors"], list[dict[str, Any]])
    total = 0
    for group in groups:
        numbers = group.get("count", 1)
        for side in group["shape"]:
            numbers *= side
        total += numbers
    return total


def test_a_pipeline_is_all_of_its_parts_a_second_denoiser_among_them(at: Folder) -> None:
    model = _flux(at).model
    assert isinstance(model, PipelineModel)
    assert parameter_count(model) == 11_901_408_320 + 123_060_480 + 4_762_310_656 + 83_819_683
    assert [(one.name, one.tokens) for one in model.encoders] == [("text_encoder", 77), ("text_encoder_2", 512)]
    assert model.guidance_batch == 1
    parts = {"text_encoder": ("UMT5EncoderModel", UMT5), "transformer": ("WanTransformer3DModel", SMALL_WAN)}
    parts |= {"transformer_2": ("WanTransformer3DModel", SMALL_WAN), "vae": ("AutoencoderKLWan", WAN_VAE)}
    preset = preset_of(at.pipeline("WanPipeline", parts))
    assert parameter_count(preset.model) == 2 * 1_418_996_800 + 5_680_910_336 + 126_892_531
    found = ANALYTIC.estimate(Workload(model=preset.model, run=preset.run), H100)
    assert {part.name for part in found.parts} >= {"weights: transformer", "weights: transformer_2"}


def test_what_is_missing_is_told(at: Folder) -> None:
    at.config(FLUX, "transformer")
    index = {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"]}
    (at.path / "model_index.json").write_text(json.dumps(index | {"vae": ["diffusers", "AutoencoderKL"]}))
    preset = preset_of(at.path)
    assert preset.model.__struct_config__.tag == "dit"
    assert "its transformer only, since" in preset.notes
    assert "vae/config.json does not exist" in preset.notes


def test_offload_leaves_one_part_or_one_layer_on_the_card(at: Folder) -> None:
    preset = _flux(at)
    assert isinstance(preset.run, InferRun)
    model = preset.model

    def asked(**changes: Any) -> Any:
        run = msgspec.structs.replace(preset.run, **changes)
        return ANALYTIC.estimate(Workload(model=model, run=run), H100)

    whole, parts, layers = asked(), asked(offload="model"), asked(offload="sequential")
    assert whole.peak_phase == "decode"  # all weights are there; the VAE's activations are the largest
    assert parts.peak_phase == "forward"  # the denoiser's own weights are the most of any part
    assert parts.ledger.weights == pytest.approx(11_901_408_320 * 2, rel=0.01)
    assert layers.ledger.weights < 600_000_000 < parts.ledger.weights < whole.ledger.weights
    tiled = asked(offload="sequential", vae_tiling=True)
    assert tiled.allocated == layers.allocated  # an image of one tile
    four = {"batch_size": 4, "offload": "sequential"}
    assert asked(**four, vae_slicing=True).allocated < asked(**four).allocated


def test_training_keeps_the_encoders_or_not(at: Folder) -> None:
    model = _flux(at).model
    lora = Lora(rank=16, target_modules=("to_q", "to_k", "to_v", "to_out"))
    run = TrainRun(precision="bf16-mixed", checkpointing="full", lora=lora)
    kept = ANALYTIC.estimate(Workload(model=model, run=run), H100)
    off = ANALYTIC.estimate(Workload(model=model, run=msgspec.structs.replace(run, offload="model")), H100)
    assert isinstance(model, PipelineModel)
    alone = ANALYTIC.estimate(Workload(model=model.denoiser, run=run), H100)
    assert off.allocated == alone.allocated
    others = 2 * (123_060_480 + 4_762_310_656) + 4 * 83_819_683
    assert (kept.ledger.weights or 0) - (off.ledger.weights or 0) == pytest.approx(others, rel=0.001)
    # Ranks of DDP add to a pipeline what they add to its denoiser; weights of frozen parts are not sharded.
    for one in (run, msgspec.structs.replace(run, offload="model")):
        pair = ANALYTIC.estimate(Workload(model=model, run=one, parallel=Parallel(data=2)), H100)
        two = ANALYTIC.estimate(Workload(model=model.denoiser, run=run, parallel=Parallel(data=2)), H100)
        buckets = (two.ledger.gradients or 0) - (alone.ledger.gradients or 0)
        assert buckets > 0
        single = kept if one is run else off
        assert (pair.ledger.gradients or 0) - (single.ledger.gradients or 0) == buckets
        assert pair.ledger.weights == single.ledger.weights
    with pytest.raises(UserError, match="estimated as DDP"):
        ANALYTIC.estimate(Workload(model=model, run=run, parallel=Parallel(data=2, strategy="fsdp")), H100)


# Peaks of allocated and reserved of whole pipelines at their true sizes: the real PyTorch 2.13 CUDA build on a stubbed
# driver, diffusers 0.42, random weights.
MEASURED: list[tuple[str, dict[str, Any], dict[str, Any], int, int]] = rows(__file__, "measured")


@pytest.mark.parametrize(
    ("key", "run", "denoiser", "allocated", "reserved"),
    MEASURED,
    ids=[f"{row[0]}-{'-'.join(map(str, [*row[1].values(), *row[2].values()]))}" for row in MEASURED],
)
def test_whole_pipelines_hold_what_they_hold_on_the_cuda_build(
    key: str, run: dict[str, Any], denoiser: dict[str, Any], allocated: int, reserved: int
) -> None:
    preset = preset_named(key, LIBRARY).preset
    model = preset.model
    assert isinstance(model, PipelineModel)
    model = msgspec.structs.replace(
        model,
        parameters=None,
        denoiser=msgspec.structs.replace(model.denoiser, parameters=None, **denoiser),
        vae=msgspec.structs.replace(model.vae, fp32=False),
    )
    found = ANALYTIC.estimate(Workload(model=model, run=msgspec.structs.replace(preset.run, **run)), H100)
    assert found.allocated == pytest.approx(allocated, rel=0.01)
    assert found.reserved == pytest.approx(reserved, rel=0.04)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"run.offload": "model"}, "run.offload = 'model'"), ({"run.vae_tiling": True}, "run.vae_tiling")],
)
def test_offload_is_a_pipelines(changes: dict[str, Any], said: str, at: Folder) -> None:
    preset = preset_of(at.config(FLUX))
    run = msgspec.structs.replace(preset.run, **{key.removeprefix("run."): value for key, value in changes.items()})
    with pytest.raises(UserError, match=said):
        ANALYTIC.estimate(Workload(model=preset.model, run=run), H100)
