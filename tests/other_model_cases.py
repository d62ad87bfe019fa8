"""Small models of every other kind, each beside the configuration that transformers or diffusers builds it from.

The peaks of their real code are recorded in `tests/golden/other_models.json`; tests compare the estimator with them.
"""

from typing import Any

import msgspec

from tests.golden_workloads import RECORDED
from vramtui.core.schema.encoder_models import DiffusionTransformerModel, EncoderDecoderModel, EncoderModel, UNetModel
from vramtui.core.schema.workload import Attention, InferRun, Lora, Precision, TrainRun, Workload

Other = EncoderModel | EncoderDecoderModel | UNetModel | DiffusionTransformerModel
Config = dict[str, Any]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One workload and what builds the same in PyTorch."""

    name: str
    workload: Workload
    job: Config


TRANSFORMER: Config = {"d_model": 256, "vocab_size": 4000}
BOTH_SIDES: Config = {
    "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024,
}  # fmt: skip
BERT: Config = {
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 4000,
}
IMAGES: Config = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "intermediate_size": 768}
VIT: Config = {**IMAGES, "image_size": 128, "patch_size": 16}
CLIP: Config = {**IMAGES, "image_size": 112, "patch_size": 14, "projection_dim": 128, "hidden_act": "quick_gelu"}
CLIP_TEXT: Config = {**BERT, "max_position_embeddings": 77}
T5: Config = {**TRANSFORMER, "d_kv": 64, "d_ff": 1024}
T5_BUILT: Config = {"num_layers": 4, "num_decoder_layers": 4, "num_heads": 4, "decoder_start_token_id": 0}
BART_BUILT: Config = {
    **TRANSFORMER, **BOTH_SIDES, "max_position_embeddings": 512, "dropout": 0.1, "attention_dropout": 0.1,
    "activation_dropout": 0.1,
}  # fmt: skip
WHISPER: Config = {**TRANSFORMER, "num_mel_bins": 80, "max_source_positions": 500, "max_target_positions": 128}
WHISPER_BUILT: Config = {
    **BOTH_SIDES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3,
    "begin_suppress_tokens": None, "suppress_tokens": None,
}  # fmt: skip
FLUX: Config = {
    "num_layers": 3, "num_single_layers": 4, "attention_head_dim": 64, "num_attention_heads": 8, "in_channels": 16,
    "joint_attention_dim": 64, "pooled_projection_dim": 32, "guidance_embeds": True,
}  # fmt: skip
SD_BUILT: Config = {
    "sample_size": 32,
    "block_out_channels": [64, 128, 128],
    "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
    "attention_head_dim": 4,
    "cross_attention_dim": 96,
}
SDXL_BUILT: Config = {
    "sample_size": 32,
    "block_out_channels": [64, 128, 256],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "attention_head_dim": [2, 4, 8],
    "transformer_layers_per_block": [1, 2, 4],
    "cross_attention_dim": 96,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 32,
    "projection_class_embeddings_input_dim": 256,
}
SIDES: Config = {"encoder_layers": 4, "decoder_layers": 4, "num_attention_heads": 4}
PRE_NORM: Config = {"norm_first": True, "norm_after": True}

MODELS: dict[str, tuple[Other, Config]] = {
    "bert": (EncoderModel(**BERT, type_vocab_size=2, max_position_embeddings=512, hidden_dropout=0.1,
        attention_dropout=0.1, head="mlm"), BERT),
    "vit": (EncoderModel(**VIT, **PRE_NORM, norm_before=False, head="classes", num_labels=100), {**VIT, "num_labels":
        100}),
    "clip-vision": (EncoderModel(**CLIP, **PRE_NORM, patch_bias=False), CLIP),
    "clip-text": (EncoderModel(**CLIP_TEXT, **PRE_NORM, norm_before=False, hidden_act="quick_gelu", causal=True),
        CLIP_TEXT),
    "t5": (EncoderDecoderModel(**T5, **SIDES, relative_attention_num_buckets=32, dropout=0.1), {**T5, **T5_BUILT}),
    "flan-t5": (EncoderDecoderModel(**T5, **SIDES, relative_attention_num_buckets=32, dropout=0.1, gated_mlp=True,
        hidden_act="gelu_new"), {**T5, **T5_BUILT, "feed_forward_proj": "gated-gelu"}),
    "bart": (EncoderDecoderModel(**TRANSFORMER, **SIDES, d_ff=1024, hidden_act="gelu", norm="layernorm", bias=True,
        max_source_positions=512, max_target_positions=512, position_offset=2, norm_embeddings=True, final_norm=False,
        final_bias=True, dropout=0.1), BART_BUILT),
    "whisper": (EncoderDecoderModel(**WHISPER, **SIDES, d_ff=1024, hidden_act="gelu", norm="layernorm", bias=True,
        key_bias=False, source_positions_trained=False), {**WHISPER, **WHISPER_BUILT}),
    "sd": (UNetModel(block_out_channels=(64, 128, 128), transformer_layers_per_block=(1, 1, 0),
        attention_head_dim=(4,), cross_attention_dim=96, sample_size=32), SD_BUILT),
    "sdxl": (UNetModel(block_out_channels=(64, 128, 256), transformer_layers_per_block=(0, 2, 4),
        attention_head_dim=(2, 4, 8), cross_attention_dim=96, sample_size=32, use_linear_projection=True,
        addition_embed_dim=256), SDXL_BUILT),
    "flux": (DiffusionTransformerModel(**FLUX, sample_size=512, text_length=128), {**FLUX, "axes_dims_rope": [16, 24,
        24]}),
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
    model, config = MODELS[name]
    batch, source, target = SIZES[name]
    attention: Attention = "eager" if eager else "flash"
    run = TrainRun(
        torch=RECORDED,
        batch_size=batch,
        sequence_length=source,
        target_length=target,
        precision=precision,
        attention=attention,
        checkpointing="full" if checkpointed else "none",
    )
    job = _job(name, config, batch, precision) | {"phase": "train", "target": target, "checkpointing": checkpointed}
    how = "-eager" if eager else "-checkpointed" if checkpointed else ""
    job["attention"] = "eager" if eager else "sdpa"
    return Case(name=f"{name}-{precision}{how}", workload=Workload(model=model, run=run), job=job)


def _adapted(name: str, *, checkpointed: bool) -> Case:
    """Adapters in fp32 under autocast, beside weights in bf16."""
    whole = _training(name, "bf16-mixed", checkpointed=checkpointed)
    run = msgspec.structs.replace(whole.workload.run, lora=LORA)
    return Case(
        name=f"{whole.name}-lora",
        workload=msgspec.structs.replace(whole.workload, run=run),
        job=whole.job | {"rank": LORA.rank, "weights": "bf16"},
    )


def _asking(name: str, precision: Precision) -> Case:
    """Twice the batch, four times for encoders; encoder-decoders generate."""
    model, config = MODELS[name]
    batch, source, _ = SIZES[name]
    batch *= 4 if isinstance(model, EncoderModel) else 2
    new = NEW_TOKENS if isinstance(model, EncoderDecoderModel) else 0
    run = InferRun(torch=RECORDED, batch_size=batch, sequence_length=source, new_tokens=new, precision=precision)
    job = _job(name, config, batch, precision) | {"phase": "infer", "new": new, "attention": "sdpa"}
    return Case(name=f"{name}-{precision}-infer", workload=Workload(model=model, run=run), job=job)


def _job(name: str, config: Config, batch: int, precision: str) -> Config:
    return {"model": name, "config": config, "batch": batch, "source": SIZES[name][1], "precision": precision}


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
