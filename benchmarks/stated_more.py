"""More jobs for the kinds that few runs stood behind: 8-bit optimizers, encoders, encoder-decoders and DDP.

Sizes are those of the public configs that the names say; blocks are cut to six as in `stated_matrix.py`.
"""

from collections.abc import Iterator
from typing import Any

from tests.recorded.stated_jobs import DECODERS, Job, classic_config, shortened


def _image(hidden: int, layers: int, heads: int, side: int, patch: int) -> dict[str, Any]:
    sizes = classic_config(hidden, layers, heads, 0) | {"image_size": side, "patch_size": patch, "num_labels": 10}
    del sizes["vocab_size"]
    return sizes


def _t5(model: int, layers: int, heads: int, wide: int, vocab: int = 32128) -> dict[str, Any]:
    sizes = {"d_model": model, "num_layers": layers, "num_decoder_layers": layers, "num_heads": heads, "d_ff": wide}
    return {**sizes, "d_kv": 64, "vocab_size": vocab, "decoder_start_token_id": 0, "pad_token_id": 0}


GATED: dict[str, Any] = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# family: (model_type, architecture, config)
ENCODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-mini": ("bert", "BertForMaskedLM", classic_config(256, 4, 4, 30522)),
    "bert-base-multilingual": ("bert", "BertForSequenceClassification", classic_config(768, 12, 12, 119547)),
    "bert-large": ("bert", "BertForSequenceClassification", classic_config(1024, 24, 16, 30522)),
    "roberta-large": ("roberta", "RobertaForMaskedLM", classic_config(1024, 24, 16, 50265, type_vocab_size=1)),
    "roberta-classes": (
        "roberta",
        "RobertaForSequenceClassification",
        classic_config(768, 12, 12, 50265, type_vocab_size=1, max_position_embeddings=514),
    ),
    "xlm-roberta-base": (
        "xlm-roberta",
        "XLMRobertaForSequenceClassification",
        classic_config(768, 12, 12, 250002, type_vocab_size=1, max_position_embeddings=514),
    ),
    "camembert-base": (
        "camembert",
        "CamembertForMaskedLM",
        classic_config(768, 12, 12, 32005, type_vocab_size=1, max_position_embeddings=514),
    ),
    "vit-large-384": ("vit", "ViTForImageClassification", _image(1024, 24, 16, 384, 16)),
    "vit-small": ("vit", "ViTForImageClassification", _image(384, 12, 6, 224, 16)),
}
ENCODER_DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "t5-small": ("t5", "T5ForConditionalGeneration", _t5(512, 6, 8, 2048)),
    "t5-large": ("t5", "T5ForConditionalGeneration", _t5(1024, 24, 16, 4096)),
    "flan-t5-large": ("t5", "T5ForConditionalGeneration", {**_t5(1024, 24, 16, 2816), **GATED}),
    "t5-v1.1-small": ("t5", "T5ForConditionalGeneration", {**_t5(512, 8, 6, 1024), **GATED}),
    "mt5-base": ("mt5", "MT5ForConditionalGeneration", {**_t5(768, 12, 12, 2048, 250112), **GATED}),
    "bart-large": (
        "bart",
        "BartForConditionalGeneration",
        {
            "d_model": 1024,
            "encoder_layers": 12,
            "decoder_layers": 12,
            "encoder_attention_heads": 16,
            "decoder_attention_heads": 16,
            "encoder_ffn_dim": 4096,
            "decoder_ffn_dim": 4096,
            "vocab_size": 50265,
        },
    ),
}
BASE: dict[str, Any] = {"kind": "train", "optimizer": "adamw", "attention": "flash"}
TRAININGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("H200", {"precision": "bf16-mixed", "batch_size": 8, "sequence_length": 384}),
    ("A100-80GB", {"precision": "fp32", "batch_size": 6, "sequence_length": 256, "checkpointing": "full"}),
    ("T4", {"precision": "fp16-mixed", "batch_size": 8, "sequence_length": 128}),
    ("RTX4090", {"precision": "bf16", "batch_size": 16, "sequence_length": 256}),
    ("RTX3090", {"precision": "fp32", "batch_size": 8, "sequence_length": 128, "attention": "eager"}),
)
SMALL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("H200", {"precision": "bf16", "batch_size": 4, "sequence_length": 512}),
    ("A100-80GB", {"precision": "bf16-mixed", "batch_size": 2, "sequence_length": 768}),
)
EIGHT_BIT = ("opt-1.3b", "phi-1.5", "stablelm-2-1.6b", "qwen3-0.6b", "tinyllama-1.1b", "pythia-1.4b", "gpt2-medium",
             "olmo2-1b", "granite-3-2b")  # fmt: skip


def more_jobs() -> Iterator[Job]:
    """All of them, without a name."""
    for family in EIGHT_BIT:
        if family in DECODERS:
            for device, run in SMALL:
                yield _job("decoder train", family, DECODERS[family], device, run | {"optimizer": "adamw_8bit"})
    for at, (family, model) in enumerate(ENCODERS.items()):
        unwanted = {"sequence_length"} if "image_size" in model[2] else set()
        for device, whole in (TRAININGS[at % 5], TRAININGS[(at + 2) % 5]):
            run = {key: value for key, value in whole.items() if key not in unwanted}
            yield _job("encoder", family, model, device, run)
    for at, (family, model) in enumerate(ENCODER_DECODERS.items()):
        for device, run in (TRAININGS[at % 5], TRAININGS[(at + 1) % 5], TRAININGS[(at + 3) % 5]):
            target = {"target_length": run["sequence_length"] // 4, "batch_size": run["batch_size"] // 2}
            yield _job("encoder-decoder", family, model, device, run | target)
    for at, family in enumerate(("qwen2.5-0.5b", "opt-125m", "qwen3-0.6b", "pythia-410m", "gpt2-medium")):
        if family in DECODERS:
            run = SMALL[at % 2][1]
            parallel = {"data": 2, "strategy": "ddp"}
            yield _job("multi-gpu", family, DECODERS[family], "H200", run) | {"parallel": parallel}


def _job(kind: str, family: str, model: tuple[str, str, dict[str, Any]], device: str, run: dict[str, Any]) -> Job:
    model_type, architecture, config = model
    whole = {"model_type": model_type, "architectures": [architecture], **shortened(config)}
    return {"kind": kind, "family": family, "config": whole, "device": device, "run": BASE | run}
