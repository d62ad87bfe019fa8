"""The jobs of `decoders.py`: transformers' own models, with peft's adapters, trained for two steps or asked once.

What to build comes as JSON in the environment variable JOB; run by `decoders_trace.py`.
"""

import contextlib
import json
import os
from importlib import import_module
from typing import Any

import torch
import transformers

JOB: dict[str, Any] = json.loads(os.environ["JOB"])
PRECISION: str = JOB["precision"]


def _built() -> Any:  # noqa: ANN401 - which class it is, the job says
    """The model on the card, its weights made in their type; beside adapters autocast finds them in bf16."""
    narrow = PRECISION == "bf16" or (PRECISION == "bf16-mixed" and "lora" in JOB)
    name: str = JOB["model"]
    head = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    config = getattr(transformers, f"{name}Config")(
        **JOB["config"], attn_implementation=JOB.get("attention", "sdpa"), pad_token_id=0
    )
    torch.set_default_dtype(torch.bfloat16 if narrow else torch.float32)
    try:
        with torch.device("cuda"):
            return getattr(transformers, name + head)(config)
    finally:
        torch.set_default_dtype(torch.float32)


def _ids() -> torch.Tensor:
    return torch.randint(0, JOB["config"]["vocab_size"], (JOB["batch"], JOB["length"]), device="cuda")


def train() -> None:
    """Two steps of AdamW."""
    model = _built()
    if JOB.get("checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if "lora" in JOB:
        peft: Any = import_module("peft")  # the other jobs do without
        model = peft.get_peft_model(model, peft.LoraConfig(**JOB["lora"]))
    model.train()
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad])
    for _ in range(2):
        ids = _ids()
        labels = ids.clone()
        mixed = PRECISION == "bf16-mixed"
        with torch.autocast("cuda", torch.bfloat16) if mixed else contextlib.nullcontext():
            loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def infer() -> None:
    """One call of generate()."""
    model = _built()
    model.eval()
    ids, new = _ids(), JOB["new"]
    with torch.no_grad():
        model.generate(ids, max_new_tokens=new, min_new_tokens=new, do_sample=False, **JOB.get("generate", {}))
