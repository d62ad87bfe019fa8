"""The jobs whose traces are recorded: transformers' and diffusers' own models, trained for two steps or asked once.

What to build comes as JSON in the environment variable JOB; run by `other_models_trace.py`.
"""

import contextlib
import json
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import transformers
from transformers.generation.utils import GenerationMixin

JOB: dict[str, Any] = json.loads(os.environ["JOB"])
CLASSES = {
    "bert": ("BertConfig", "BertForMaskedLM"),
    "vit": ("ViTConfig", "ViTForImageClassification"),
    "clip-vision": ("CLIPVisionConfig", "CLIPVisionModelWithProjection"),
    "clip-text": ("CLIPTextConfig", "CLIPTextModel"),
    "t5": ("T5Config", "T5ForConditionalGeneration"),
    "flan-t5": ("T5Config", "T5ForConditionalGeneration"),
    "bart": ("BartConfig", "BartForConditionalGeneration"),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration"),
}
DTYPE = {"bf16": torch.bfloat16}.get(JOB["precision"], torch.float32)
CONFIG: dict[str, Any] = JOB["config"]
BATCH, SOURCE, TARGET = JOB["batch"], JOB["source"], JOB.get("target")


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=DTYPE)


def _ids(length: int) -> torch.Tensor:
    return torch.randint(0, CONFIG["vocab_size"], (BATCH, length), device="cuda")


def _built() -> Any:  # noqa: ANN401 - which class it is, the job says
    """The model on the card, its weights made in their type."""
    torch.set_default_dtype(DTYPE)
    try:
        with torch.device("cuda"):
            return _of_transformers() if JOB["model"] in CLASSES else _of_diffusers()
    finally:
        torch.set_default_dtype(torch.float32)


def _of_transformers() -> Any:  # noqa: ANN401 - as above
    config_class, model_class = (getattr(transformers, name) for name in CLASSES[JOB["model"]])
    return model_class(config_class(**CONFIG, attn_implementation=JOB["attention"]))


def _of_diffusers() -> Any:  # noqa: ANN401 - as above; the other jobs need no diffusers
    kind = "FluxTransformer2DModel" if JOB["model"] == "flux" else "UNet2DConditionModel"
    return getattr(import_module("diffusers"), kind)(**CONFIG)


def _batch() -> dict[str, Any]:
    name = JOB["model"]
    if name == "flux":
        return _flux_batch()
    if name in {"sd", "sdxl"}:
        return _unet_batch()
    if name in {"vit", "clip-vision"}:
        batch = {"pixel_values": _normal(BATCH, 3, CONFIG["image_size"], CONFIG["image_size"])}
        if name == "vit" and JOB["phase"] == "train":
            batch["labels"] = torch.randint(0, CONFIG["num_labels"], (BATCH,), device="cuda")
        return batch
    if name == "whisper":
        batch = {"input_features": _normal(BATCH, CONFIG["num_mel_bins"], 2 * CONFIG["max_source_positions"])}
    else:
        batch = {"input_ids": _ids(SOURCE)}
    if JOB["phase"] == "train" and name != "clip-text":
        batch["labels"] = _ids(TARGET or SOURCE)
    return batch


def _flux_batch() -> dict[str, Any]:
    image, text = 32 * 32, 128
    batch = {
        "hidden_states": _normal(BATCH, image, CONFIG["in_channels"]),
        "encoder_hidden_states": _normal(BATCH, text, CONFIG["joint_attention_dim"]),
        "pooled_projections": _normal(BATCH, CONFIG["pooled_projection_dim"]),
        "timestep": torch.rand(BATCH, device="cuda", dtype=DTYPE),
        "guidance": torch.rand(BATCH, device="cuda", dtype=DTYPE),
        "img_ids": torch.zeros(image, 3, device="cuda", dtype=DTYPE),
        "txt_ids": torch.zeros(text, 3, device="cuda", dtype=DTYPE),
    }
    return batch | ({"noise": _normal(BATCH, image, CONFIG["in_channels"])} if JOB["phase"] == "train" else {})


def _unet_batch() -> dict[str, Any]:
    side = CONFIG["sample_size"]
    batch: dict[str, Any] = {
        "sample": _normal(BATCH, 4, side, side),
        "timestep": torch.randint(0, 1000, (BATCH,), device="cuda"),
        "encoder_hidden_states": _normal(BATCH, 77, CONFIG["cross_attention_dim"]),
    }
    if "addition_embed_type" in CONFIG:
        pooled = CONFIG["projection_class_embeddings_input_dim"] - 6 * CONFIG["addition_time_embed_dim"]
        ids = torch.zeros(BATCH, 6, device="cuda", dtype=DTYPE)
        batch["added_cond_kwargs"] = {"text_embeds": _normal(BATCH, pooled), "time_ids": ids}
    return batch | ({"noise": _normal(BATCH, 4, side, side)} if JOB["phase"] == "train" else {})


def _cast() -> contextlib.AbstractContextManager[object]:
    if JOB["precision"] == "bf16-mixed":
        return torch.autocast("cuda", torch.bfloat16)
    return contextlib.nullcontext()


def _loss(model: Callable[..., Any], batch: dict[str, Any]) -> torch.Tensor:
    noise = batch.pop("noise", None)
    out = model(**batch)
    if noise is not None:
        return torch.nn.functional.mse_loss(out.sample.float(), noise.float())
    loss: torch.Tensor = out.loss if "labels" in batch else out[0].sum()
    return loss


def train() -> None:
    """Two steps of AdamW."""
    model: Any = _built()
    if JOB["checkpointing"]:
        if JOB["model"] in CLASSES:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        else:
            model.enable_gradient_checkpointing()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        batch = _batch()
        with _cast():
            loss = _loss(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def infer() -> None:
    """One pass, or generation; Whisper's own generate() asks for what a tracer cannot know, so the plain one is."""
    model: Any = _built()
    model.eval()
    batch = _batch()
    with torch.no_grad():
        if JOB["new"]:
            new = JOB["new"]
            GenerationMixin.generate(model, **batch, max_new_tokens=new, min_new_tokens=new, do_sample=False)
        else:
            model(**batch)
