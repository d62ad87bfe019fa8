"""Presets of encoders, encoder-decoders, UNets and diffusion transformers: counts proven, and jobs recognised."""

from typing import Any

import pytest

from tests.loaded_once import bundled_presets
from tests.tables import for_each, rows
from vramtui.core.estimate.devices import card
from vramtui.core.observation.matcher import matches
from vramtui.core.observation.readings import Gpu, Process
from vramtui.core.schema.models import DiffusionTransformerModel, EncoderDecoderModel, EncoderModel, UNetModel
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.presets import bundled_folder

GPU = Gpu(index=0, uuid="GPU-0", name="NVIDIA H100")
OTHER = (EncoderModel, EncoderDecoderModel, UNetModel, DiffusionTransformerModel)
BUNDLED = {found.key: found.preset for found in bundled_presets()}
PRESETS = {key: preset for key, preset in BUNDLED.items() if isinstance(preset.model, OTHER)}

LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
T5_XL = {"d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32, "feed_forward_proj": "gated-gelu"}


def whisper(width: int, layers: int, heads: int, **more: int) -> dict[str, int]:
    sides = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in (
        ("layers", layers), ("attention_heads", heads), ("ffn_dim", 4 * width),
    )}  # fmt: skip
    return {"d_model": width, **sides, **more}


# What transformers builds, by its own classes and the published sizes. Flan-T5's output layer, which the checkpoint has
# and transformers ties all the same, is 32,128 x 2,048 more.
BUILT: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "bert-base-mlm": ("BertConfig", "BertForMaskedLM", {}, 0),
    "bert-large-classify": ("BertConfig", "BertForSequenceClassification", LARGE, 0),
    "vit-b16-train": ("ViTConfig", "ViTForImageClassification", {"num_labels": 1000}, 0),
    "vit-l16-infer": ("ViTConfig", "ViTForImageClassification", {**LARGE, "num_labels": 1000}, 0),
    "clip-vit-l14-vision-infer": (
        "CLIPVisionConfig",
        "CLIPVisionModelWithProjection",
        {**LARGE, "patch_size": 14, "projection_dim": 768},
        0,
    ),
    "clip-vit-l14-text-infer": (
        "CLIPTextConfig",
        "CLIPTextModel",
        {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
        0,
    ),
    "t5-small-train": ("T5Config", "T5ForConditionalGeneration", {}, 0),
    "t5-base-summarize": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
        0,
    ),
    "t5-large-infer": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
        0,
    ),
    "flan-t5-xl-infer": ("T5Config", "T5ForConditionalGeneration", T5_XL, 32128 * 2048),
    "bart-large-train": ("BartConfig", "BartForConditionalGeneration", {}, 0),
    "whisper-small-train": ("WhisperConfig", "WhisperForConditionalGeneration", whisper(768, 12, 12), 0),
    "whisper-large-v3-infer": (
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        whisper(1280, 32, 20, vocab_size=51866, num_mel_bins=128),
        0,
    ),
}
# diffusers' models are counted by their published checkpoints.
PUBLISHED = {
    "flux-dev-full": 11_901_408_320,
    "flux-dev-infer": 11_901_408_320,
    "flux-dev-lora": 11_901_408_320,
    "sd-1.5-train": 859_520_964,
    "sd-2.1-infer": 865_910_724,
    "sdxl-infer": 2_567_463_684,
    "sdxl-lora": 2_567_463_684,
    "sdxl-train": 2_567_463_684,
    # Vaswani et al. 2017, base: 37,000 shared words, and of torch.nn.Transformer's layers six and six with their norms.
    "transformer-base-train": 37_000 * 512 + 6 * 3_152_384 + 6 * 4_204_032,
}


def test_every_preset_is_counted() -> None:
    assert set(PRESETS) == set(BUILT) | set(PUBLISHED)
    assert len(PRESETS) >= 12


@pytest.mark.torch
@for_each(BUILT)
def test_transformers_builds_as_many_parameters(key: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config, kind, sizes, more = BUILT[key]
    with torch.device("meta"):
        model = getattr(transformers, kind)(getattr(transformers, config)(**sizes))
    model.tie_weights()
    assert sum(parameter.numel() for parameter in model.parameters()) + more == parameter_count(PRESETS[key].model)


@for_each(PUBLISHED)
def test_the_published_count(key: str) -> None:
    assert parameter_count(PRESETS[key].model) == PUBLISHED[key]


def test_both_of_clips_towers_are_the_whole() -> None:
    """With the text's projection of 768 x 768 and the temperature, they are the published model."""
    towers = (PRESETS[key].model for key in ("clip-vit-l14-vision-infer", "clip-vit-l14-text-infer"))
    assert sum(parameter_count(tower) for tower in towers) + 768 * 768 + 1 == 427_616_513


@for_each(PRESETS)
def test_it_says_what_it_is_and_what_is_taken_for_granted(key: str) -> None:
    preset = PRESETS[key]
    estimate = ANALYTIC.estimate(preset.workload, card("H200"))
    assert estimate.assumptions
    assert all(part.formula and part.source and part.lifetime for part in estimate.parts)


@for_each(sorted(bundled_folder().rglob("*.toml")))
def test_other_models_say_where_their_shapes_are_from(path: Any) -> None:
    if path.stem in PRESETS:
        assert path.read_text(encoding="utf-8").startswith("# Shapes: ")


@for_each(rows(__file__, "commands_find_their_preset_and_no_other"))
def test_commands_find_their_preset_and_no_other(command: str, keys: list[str]) -> None:
    rules = {key: preset.match for key, preset in BUNDLED.items() if preset.match}
    process = Process(pid=1, type="C", command=command)
    assert [key for key, match in rules.items() if matches(match, GPU, process)] == keys
