"""Models of every kind as what they consist of: the tensors of each are those that its passes use."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from tests.loaded_once import bundled_presets
from vramtui.core.base.errors import UserError
from vramtui.core.schema.encoder_models import (
    DiffusionTransformerModel,
    EncoderDecoderModel,
    EncoderModel,
    PipelineModel,
    UNetModel,
)
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic.models.registry import ANY_CARD, program_of
from vramtui.models.spec import Parameter
from vramtui.models.specs.model import SPECS, model_spec, pipeline_spec

UNET = UNetModel(
    block_out_channels=(32, 64, 96), layers_per_block=1, transformer_layers_per_block=(0, 2, 1),
    attention_head_dim=(4,), cross_attention_dim=20, sample_size=8, addition_embed_dim=12, use_linear_projection=True,
)  # fmt: skip
SD3 = DiffusionTransformerModel(
    design="sd3", num_layers=4, num_attention_heads=2, attention_head_dim=8, in_channels=4, joint_attention_dim=12,
    pooled_projection_dim=10, dual_attention_layers=2, sample_size=64,
)  # fmt: skip
FLUX = DiffusionTransformerModel(
    num_layers=2, num_single_layers=3, num_attention_heads=2, attention_head_dim=8, guidance_embeds=True, qk_norm=False,
)  # fmt: skip
T5 = EncoderDecoderModel(
    d_model=12, encoder_layers=3, decoder_layers=2, num_attention_heads=3, d_ff=20, vocab_size=11, d_kv=5,
    gated_mlp=True, relative_attention_num_buckets=4, tie_word_embeddings=False,
)  # fmt: skip
BART = EncoderDecoderModel(
    d_model=12, encoder_layers=2, decoder_layers=4, num_attention_heads=3, d_ff=20, vocab_size=11, norm="layernorm",
    bias=True, max_source_positions=9, max_target_positions=9, position_offset=2, norm_embeddings=True,
    final_norm=False, final_bias=True,
)  # fmt: skip
WHISPER = EncoderDecoderModel(
    d_model=12, encoder_layers=2, decoder_layers=2, num_attention_heads=3, d_ff=20, vocab_size=11, norm="layernorm",
    bias=True, key_bias=False, max_source_positions=6, max_target_positions=7, source_positions_trained=False,
    num_mel_bins=8,
)  # fmt: skip


def _known() -> dict[str, Any]:
    presets = {found.key: found.preset.model for found in bundled_presets()}
    models = {key: model.denoiser if isinstance(model, PipelineModel) else model for key, model in presets.items()}
    kinds = EncoderModel, EncoderDecoderModel, UNetModel, DiffusionTransformerModel
    found = {key: model for key, model in models.items() if isinstance(model, kinds)}
    return {"unet": UNET, "sd3": SD3, "flux": FLUX, "t5": T5, "bart": BART, "whisper": WHISPER} | found


KNOWN = _known()
PIPELINES = [found.preset.model for found in bundled_presets() if isinstance(found.preset.model, PipelineModel)]


def _counted(tensors: tuple[Parameter, ...]) -> Counter[tuple[str, tuple[int, ...], bool]]:
    counts: Counter[tuple[str, tuple[int, ...], bool]] = Counter()
    for tensor in tensors:
        counts[tensor.module, tensor.shape, tensor.layer] += tensor.count
    return counts


@pytest.mark.parametrize("name", list(KNOWN))
def test_every_tensor_is_one_that_a_pass_uses(name: str) -> None:
    model, spec = KNOWN[name], model_spec(KNOWN[name])
    fixed = getattr(model, "image_size", None) or getattr(model, "num_mel_bins", None)
    reads_words = isinstance(model, EncoderModel | EncoderDecoderModel) and not fixed
    program = program_of(model, InferRun(precision="fp32", sequence_length=1 if reads_words else None), ANY_CARD)
    assert spec is not None
    assert _counted(spec.tensors()) == _counted(program.frozen)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (msgspec.structs.replace(BART, num_attention_heads=5), "does not divide"),
        (msgspec.structs.replace(WHISPER, max_source_positions=None), "which needs"),
        (msgspec.structs.replace(UNET, transformer_layers_per_block=(0,)), "give one for each"),
        (msgspec.structs.replace(UNET, sample_size=9), "cannot be halved"),
    ],
)
def test_sizes_that_cannot_be_are_refused(model: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        model_spec(model)


@pytest.mark.parametrize("model", PIPELINES)
def test_a_pipeline_has_the_tensors_of_all_its_parts(model: PipelineModel) -> None:
    groups = [*model.vae.tensors, *(group for encoder in model.encoders for group in encoder.tensors)]
    beside = sum(group.numel * group.count for group in groups)
    denoiser = SPECS[type(model.denoiser)](model.denoiser)
    assert pipeline_spec(model).parameters() == model.denoisers * denoiser.parameters() + beside
