from collections import Counter
from typing import Any, get_args

import msgspec
import pytest

from tests.loaded_once import bundled_presets
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import (
    Conv2d,
    ConvNetModel,
    DiffusionTransformerModel,
    Embedding,
    EncoderDecoderModel,
    EncoderModel,
    Flatten,
    Linear,
    PipelineModel,
    Recurrent,
    Repeat,
    SelfAttention,
    SequentialModel,
    Stage,
    UNetModel,
)
from vramtui.core.schema.models import Norm as LayerNorm
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic.models.decoder import RECORDERS
from vramtui.estimators.analytic.models.registry import program_of
from vramtui.models import spec as kinds
from vramtui.models.readers.torchvision import vision_table
from vramtui.models.spec import Kind, Module, Parameter
from vramtui.models.specs.decoder import SPECS, model_spec, pipeline_spec

ANY_CARD = Device(name="any", capability=(8, 0), total_memory=0)
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
LISTS = SequentialModel(
    input_shape=(9,),
    layers=(
        Embedding(num_embeddings=30, embedding_dim=12), SelfAttention(num_heads=3), LayerNorm(norm="rms"),
        Recurrent(cell="lstm", hidden_size=10, num_layers=2, bidirectional=True, proj_size=4),
        Recurrent(cell="gru", hidden_size=5, bias=False, output="last"), Linear(out_features=7),
    ),
)  # fmt: skip
# The first round changes the shape, those behind it are alike.
REPEATED = SequentialModel(
    input_shape=(3, 8, 8),
    layers=(
        Repeat(layers=(Conv2d(out_channels=6, kernel_size=3, padding=1), LayerNorm(norm="batch")), times=4),
        Conv2d(out_channels=6, kernel_size=3, padding=1, weights="shared"), Flatten(), Linear(out_features=2),
    ),
)  # fmt: skip
NET = ConvNetModel(stages=(Stage(blocks=2, channels=8), Stage(blocks=1, channels=16, stride=2)), image_size=64)
# Nets of branches, of windows, and one that finds boxes.
NETS = ("convnext_tiny", "swin_t", "fasterrcnn_resnet50_fpn")


def _known() -> dict[str, Any]:
    presets = {found.key: found.preset.model for found in bundled_presets()}
    models = {key: model.denoiser if isinstance(model, PipelineModel) else model for key, model in presets.items()}
    kinds = EncoderModel, EncoderDecoderModel, UNetModel, DiffusionTransformerModel, SequentialModel, ConvNetModel
    found = {key: model for key, model in models.items() if isinstance(model, kinds)}
    nets = {name: msgspec.convert(vision_table(name), SequentialModel) for name in NETS}
    small = {"lists": LISTS, "repeated": REPEATED, "net": NET}
    return nets | small | {"unet": UNET, "sd3": SD3, "flux": FLUX, "t5": T5, "bart": BART, "whisper": WHISPER} | found


KNOWN = _known()
PIPELINES = [found.preset.model for found in bundled_presets() if isinstance(found.preset.model, PipelineModel)]


def _counted(tensors: tuple[Parameter, ...], *, of_layers: bool) -> Counter[tuple[str, tuple[int, ...], bool]]:
    counts: Counter[tuple[str, tuple[int, ...], bool]] = Counter()
    for tensor in tensors:
        counts[tensor.module, tensor.shape, tensor.layer and of_layers] += tensor.count
    return counts


@pytest.mark.parametrize("name", list(KNOWN))
def test_every_tensor_is_one_that_a_pass_uses(name: str) -> None:
    model, spec = KNOWN[name], model_spec(KNOWN[name])
    fixed = getattr(model, "image_size", None) or getattr(model, "num_mel_bins", None)
    reads_words = isinstance(model, EncoderModel | EncoderDecoderModel) and not fixed
    program = program_of(model, InferRun(precision="fp32", sequence_length=1 if reads_words else None), ANY_CARD)
    of_layers = not isinstance(model, SequentialModel | ConvNetModel)  # of these all is a row of layers
    assert _counted(spec.tensors(), of_layers=of_layers) == _counted(program.frozen, of_layers=of_layers)


@pytest.mark.parametrize(("model", "sentence"), [
    (msgspec.structs.replace(BART, num_attention_heads=5), "does not divide"),
    (msgspec.structs.replace(WHISPER, max_source_positions=None), "which needs"),
    (msgspec.structs.replace(UNET, transformer_layers_per_block=(0,)), "give one for each"),
    (msgspec.structs.replace(UNET, sample_size=9), "cannot be halved"),
])  # fmt: skip
def test_sizes_that_cannot_be_are_refused(model: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        model_spec(model)


@pytest.mark.parametrize("model", PIPELINES)
def test_a_pipeline_has_the_tensors_of_all_its_parts(model: PipelineModel) -> None:
    groups = [*model.vae.tensors, *(group for encoder in model.encoders for group in encoder.tensors)]
    beside = sum(group.numel * group.count for group in groups)
    denoiser = SPECS[type(model.denoiser)](model.denoiser)
    assert pipeline_spec(model).parameters() == model.denoisers * denoiser.parameters() + beside


def test_a_kind_has_one_class_and_what_is_made_of_others_is_recorded() -> None:
    own = [one for one in vars(kinds).values() if isinstance(one, type) and one.__module__ == kinds.__name__]
    classes = {one.kind: one for one in own if issubclass(one, Module) and one is not Module}
    assert set(classes) == set(get_args(Kind))
    assert set(RECORDERS) == {kind for kind, one in classes.items() if one.parts is not Module.parts}
