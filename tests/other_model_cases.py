"""Small models of every other kind, and the jobs whose peaks in their real code are recorded in
`tests/golden/other_models.json`; tests compare the estimator with them.
"""

from typing import Any

import msgspec

from tests.golden_workloads import RECORDED
from vramtui.core.schema.encoder_models import DiffusionTransformerModel, EncoderDecoderModel, EncoderModel, UNetModel
from vramtui.core.schema.workload import InferRun, Lora, Precision, TrainRun, Workload

Other = EncoderModel | EncoderDecoderModel | UNetModel | DiffusionTransformerModel
Config = dict[str, Any]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One workload, and the GPU that it was recorded for."""

    name: str
    workload: Workload
    device: str = "H200"


TRANSFORMER: Config = {"d_model": 256, "vocab_size": 4000}
BERT: Config = {
    "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 1024, "vocab_size": 4000,
}  # fmt: skip
IMAGES: Config = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "intermediate_size": 768}
VIT: Config = {**IMAGES, "image_size": 128, "patch_size": 16}
CLIP: Config = {**IMAGES, "image_size": 112, "patch_size": 14, "projection_dim": 128, "hidden_act": "quick_gelu"}
CLIP_TEXT: Config = {**BERT, "max_position_embeddings": 77}
T5: Config = {**TRANSFORMER, "d_kv": 64, "d_ff": 1024}
WHISPER: Config = {**TRANSFORMER, "num_mel_bins": 80, "max_source_positions": 500, "max_target_positions": 128}
FLUX: Config = {
    "num_layers": 3, "num_single_layers": 4, "attention_head_dim": 64, "num_attention_heads": 8, "in_channels": 16,
    "joint_attention_dim": 64, "pooled_projection_dim": 32, "guidance_embeds": True,
}  # fmt: skip
SIDES: Config = {"encoder_layers": 4, "decoder_layers": 4, "num_attention_heads": 4}
PRE_NORM: Config = {"norm_first": True, "norm_after": True}

MODELS: dict[str, Other] = {
    "bert": EncoderModel(**BERT, type_vocab_size=2, max_position_embeddings=512, hidden_dropout=0.1,
        attention_dropout=0.1, head="mlm"),
    "vit": EncoderModel(**VIT, **PRE_NORM, norm_before=False, head="classes", num_labels=100),
    "clip-vision": EncoderModel(**CLIP, **PRE_NORM, patch_bias=False),
    "clip-text": EncoderModel(**CLIP_TEXT, **PRE_NORM, norm_before=False, hidden_act="quick_gelu", causal=True),
    "t5": EncoderDecoderModel(**T5, **SIDES, relative_attention_num_buckets=32, dropout=0.1),
    "flan-t5": EncoderDecoderModel(**T5, **SIDES, relative_attention_num_buckets=32, dropout=0.1, gated_mlp=True,
        hidden_act="gelu_new"),
    "bart": EncoderDecoderModel(**TRANSFORMER, **SIDES, d_ff=1024, hidden_act="gelu", norm="layernorm", bias=True,
        max_source_positions=512, max_target_positions=512, position_offset=2, norm_embeddings=True, final_norm=False,
        final_bias=True, dropout=0.1),
    "whisper": EncoderDecoderModel(**WHISPER, **SIDES, d_ff=1024, hidden_act="gelu", norm="layernorm", bias=True,
        key_bias=False, source_positions_trained=False),
    "sd": UNetModel(block_out_channels=(64, 128, 128), transformer_layers_per_block=(1, 1, 0),
        attention_head_dim=(4,), cross_attention_dim=96, sample_size=32),
    "sdxl": UNetModel(block_out_channels=(64, 128, 256), transformer_layers_per_block=(0, 2, 4),
        attention_head_dim=(2, 4, 8), cross_attention_dim=96, sample_size=32, use_linear_projection=True,
        addition_embed_dim=256),
    "flux": DiffusionTransformerModel(**FLUX, sample_size=512, text_length=128),
}  # fmt: skip
# Samples, and tokens of source and target, in training.
SIZES: dict[str, tuple[int, int | None, int | None]] = {
    "bert": (16, 256, None), "vit": (64, None, None), "clip-vision": (64, None, None), "clip-text": (64, 77, None),
    "t5": (16, 256, 128), "flan-t5": (16, 256, 128), "bart": (16, 256, 128), "whisper": (16, None, 128), "sd": (16,
    None, None), "sdxl": (16, None, None), "flux": (4, None, None),
}  # fmt: skip
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "bf16-mixed")
NEW_TOKENS = 64
EAGER = {"bert", "vit", "t5", "flan-t5", "bart", "whisper"}
ADAPTED = {"sd", "sdxl", "flux"}
LORA = Lora(rank=8, target_modules=("to_q", "to_k", "to_v", "to_out"))
CHECKPOINTED = {"bert", "t5", "flan-t5", "bart", "whisper", "sd", "sdxl", "flux"}


def _training(name: str, precision: Precision, *, eager: bool = False, checkpointed: bool = False) -> Case:
    batch, source, target = SIZES[name]
    run = TrainRun(
        torch=RECORDED,
        batch_size=batch,
        sequence_length=source,
        target_length=target,
        precision=precision,
        attention="eager" if eager else "flash",
        checkpointing="full" if checkpointed else "none",
    )
    how = "-eager" if eager else "-checkpointed" if checkpointed else ""
    return Case(name=f"{name}-{precision}{how}", workload=Workload(model=MODELS[name], run=run))


def _adapted(name: str, *, checkpointed: bool) -> Case:
    """Adapters in fp32 under autocast, beside weights in bf16."""
    whole = _training(name, "bf16-mixed", checkpointed=checkpointed)
    run = msgspec.structs.replace(whole.workload.run, lora=LORA)
    return Case(name=f"{whole.name}-lora", workload=msgspec.structs.replace(whole.workload, run=run))


def _asking(name: str, precision: Precision) -> Case:
    """Twice the batch, four times for encoders; encoder-decoders generate."""
    model, (batch, source, _) = MODELS[name], SIZES[name]
    batch *= 4 if isinstance(model, EncoderModel) else 2
    new = NEW_TOKENS if isinstance(model, EncoderDecoderModel) else 0
    run = InferRun(torch=RECORDED, batch_size=batch, sequence_length=source, new_tokens=new, precision=precision)
    return Case(name=f"{name}-{precision}-infer", workload=Workload(model=model, run=run))


def _cases() -> list[Case]:
    cases: list[Case] = []
    for name in MODELS:
        for precision in PRECISIONS:
            cases.append(_training(name, precision))
            if name in EAGER:
                cases.append(_training(name, precision, eager=True))
            if name in CHECKPOINTED:
                cases.append(_training(name, precision, checkpointed=True))
            if precision != "bf16-mixed":
                cases.append(_asking(name, precision))
        if name in ADAPTED:
            cases += [_adapted(name, checkpointed=checkpointed) for checkpointed in (False, True)]
    return cases


CASES = {case.name: case for case in _cases()}
