"""A small image-text model of transformers with random weights, run twice on images or trained for two steps.

    vramtui trace benchmarks/towers_job.py llava train

`towers.py` traces it for each model.
"""

import sys
from typing import Any

import torch
from transformers import AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

WORD, IMAGE, WORDS = 5, 31_000, 64
TEXT: dict[str, Any] = {
    "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
    "intermediate_size": 2816, "vocab_size": 32_000, "max_position_embeddings": 4096,
}  # fmt: skip
TOWER: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "intermediate_size": 3072, "patch_size": 14,
}  # fmt: skip
QWEN: dict[str, Any] = {
    "image_token_id": IMAGE, "video_token_id": 31_001, "vision_start_token_id": 31_002, "vision_end_token_id": 31_003,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": TEXT,
        "vision_config": TOWER | {"image_size": 896, "vision_use_head": False},
        "image_token_index": IMAGE,
        "mm_tokens_per_image": 256,
    },
    "llava": {
        "text_config": TEXT | {"model_type": "llama"},
        "vision_config": TOWER | {"model_type": "clip_vision_model", "image_size": 336},
        "image_token_index": IMAGE,
    },
    "mistral3": {
        "text_config": TEXT | {"model_type": "mistral"},
        "vision_config": TOWER | {"model_type": "pixtral", "head_dim": 64, "image_size": 1540},
        "image_token_index": IMAGE,
    },
    "qwen2_5_vl": QWEN
    | {
        "text_config": TEXT,
        "vision_config": {
            "depth": 8, "hidden_size": 640, "num_heads": 8, "intermediate_size": 1720, "out_hidden_size": 1024,
            "fullatt_block_indexes": [3, 7],
        },
    },
}  # fmt: skip
# Patches along a side, images, and tokens that these stand for.
SIDE, IMAGES = 64, 4
TOKENS = {"gemma3": 256, "llava": 576 * IMAGES, "mistral3": 784, "qwen2_5_vl": 1024}


def config_of(kind: str) -> Any:  # noqa: ANN401 - a config of transformers
    """The config of one of them."""
    config = CONFIG_MAPPING[kind](**CONFIGS[kind])
    config.architectures = [type(_built(config, "meta")).__name__]
    return config


def batch_of(kind: str) -> dict[str, torch.Tensor]:
    """Images and the words behind them."""
    begin = [QWEN["vision_start_token_id"]] if kind.startswith("qwen") else []
    ids = torch.tensor([begin + [IMAGE] * TOKENS[kind] + [WORD] * (WORDS - len(begin))], device="cuda")
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if kind.startswith("qwen"):
        batch["pixel_values"] = torch.zeros(SIDE * SIDE, 3 * 2 * 14 * 14, device="cuda")
        batch["image_grid_thw"] = torch.tensor([[1, SIDE, SIDE]], device="cuda")
    elif kind == "gemma3":
        batch["pixel_values"] = torch.zeros(1, 3, 896, 896, device="cuda")
        batch["token_type_ids"] = (ids == IMAGE).long()
    elif kind == "llava":
        batch["pixel_values"] = torch.zeros(IMAGES, 3, 336, 336, device="cuda")
    else:
        batch["pixel_values"] = torch.zeros(1, 3, 784, 784, device="cuda")
        batch["image_sizes"] = torch.tensor([[784, 784]])
    return batch


def _built(config: Any, device: str) -> torch.nn.Module:  # noqa: ANN401 - as config_of
    with torch.device(device):
        build: Any = AutoModelForImageTextToText.from_config
        model: torch.nn.Module = build(config, dtype=torch.bfloat16)
    return model


def main(kind: str, what: str) -> None:
    """Two passes, or two steps."""
    model, batch = _built(config_of(kind), "cuda"), batch_of(kind)
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
