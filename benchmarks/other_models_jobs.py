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
DTYPE = {"bf16": torch.bfloat16}.get(JOB.get("weights", JOB["precision"]), torch.float32)
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


class Adapted(torch.nn.Module):
    """A frozen linear layer with LoRA beside it, as peft has it."""

    def __init__(self, base: torch.nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.lora_A = torch.nn.Linear(base.in_features, rank, bias=False, device="cuda")
        self.lora_B = torch.nn.Linear(rank, base.out_features, bias=False, device="cuda")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The base's answer and the adapter's, in the base's type."""
        out: torch.Tensor = self.base(x)
        low = self.lora_A(x.to(self.lora_A.weight.dtype))
        adapted: torch.Tensor = (out + self.lora_B(low) * 2.0).to(out.dtype)
        return adapted


def _adapt(model: torch.nn.Module, rank: int) -> None:
    """Freeze everything, and put adapters on the attentions' projections."""
    model.requires_grad_(requires_grad=False)
    for name, module in list(model.named_modules()):
        parent, _, last = name.removesuffix(".0").rpartition(".")
        if last not in {"to_q", "to_k", "to_v", "to_out"} or not isinstance(module, torch.nn.Linear):
            continue
        owner = model.get_submodule(parent)
        if name.endswith(".0"):
            torch.nn.ModuleList.__setitem__(getattr(owner, last), 0, Adapted(module, rank))
        else:
            setattr(owner, last, Adapted(module, rank))


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
    if JOB.get("rank"):
        _adapt(model, JOB["rank"])
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad])
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
