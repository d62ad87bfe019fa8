"""A small audio-text model of transformers with random weights, run twice on two clips of half a minute or trained for
two steps.

    vramtui trace benchmarks/sound_job.py voxtral train

`towers.py` traces it for each model.
"""

import sys
from typing import Any

import torch
from transformers import AutoModelForMultimodalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.towers_job import TEXT, WORD, WORDS

SOUND, CLIPS, FRAMES, MELS = 31_000, 2, 3000, 128
# Sizes of Whisper's encoder by both sets of names; those of a conformer.
WHISPER: dict[str, Any] = {
    "d_model": 768, "encoder_layers": 8, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072, "num_mel_bins": MELS,
    "max_source_positions": FRAMES // 2,
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "intermediate_size": 3072,
    "num_mel_bins": MELS, "max_source_positions": FRAMES // 2,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2_audio": {
        "text_config": TEXT | {"model_type": "qwen2"},
        "audio_config": WHISPER | {"model_type": "qwen2_audio_encoder"},
        "audio_token_index": SOUND,
    },
    "voxtral": {
        "text_config": TEXT | {"model_type": "llama"},
        "audio_config": PLAIN | {"model_type": "voxtral_encoder", "head_dim": 64},
        "audio_token_id": SOUND,
    },
    "audioflamingo3": {
        "text_config": TEXT | {"model_type": "qwen2"},
        "audio_config": PLAIN | {"model_type": "audioflamingo3_encoder"},
        "audio_token_id": SOUND,
    },
    "glmasr": {
        "text_config": TEXT | {"model_type": "llama"},
        "audio_config": PLAIN | {"model_type": "glmasr_encoder", "head_dim": 64, "num_key_value_heads": 12},
        "audio_token_id": SOUND,
    },
}
# Tokens that a clip of half a minute stands for.
TOKENS = {"qwen2_audio": 750, "voxtral": 375, "audioflamingo3": 750, "glmasr": 375}
CLASSES = {
    "qwen2_audio": "Qwen2AudioForConditionalGeneration",
    "voxtral": "VoxtralForConditionalGeneration",
    "audioflamingo3": "AudioFlamingo3ForConditionalGeneration",
    "glmasr": "GlmAsrForConditionalGeneration",
}


def config_of(kind: str) -> Any:  # noqa: ANN401 - a config of transformers
    """The config of one of them."""
    config = CONFIG_MAPPING[kind](**CONFIGS[kind])
    config.architectures = [CLASSES[kind]]
    config.dtype = torch.bfloat16
    return config


def batch_of(kind: str) -> dict[str, torch.Tensor]:
    """Spectrograms and the words behind them."""
    ids = torch.tensor([[SOUND] * (TOKENS[kind] * CLIPS) + [WORD] * WORDS], device="cuda")
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    # Two of them want it in their weights' type.
    dtype = torch.float32 if kind in {"qwen2_audio", "voxtral"} else torch.bfloat16
    batch["input_features"] = torch.zeros(CLIPS, MELS, FRAMES, device="cuda", dtype=dtype)
    heard = torch.ones(CLIPS, FRAMES, dtype=torch.long, device="cuda")
    if kind == "qwen2_audio":
        batch["feature_attention_mask"] = heard
    elif kind != "voxtral":
        batch["input_features_mask"] = heard
    return batch


def main(kind: str, what: str) -> None:
    """Two passes, or two steps."""
    with torch.device("cuda"):
        build: Any = AutoModelForMultimodalLM.from_config
        model = build(config_of(kind), dtype=torch.bfloat16)
    batch = batch_of(kind)
    if what == "train":
        optimizer = torch.optim.AdamW(model.train().parameters())
        for _ in range(2):
            model(labels=batch["input_ids"], **batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return
    with torch.no_grad():
        for _ in range(2):
            model.eval()(logits_to_keep=1, **batch)


if __name__ == "__main__":
    main(*sys.argv[1:])
