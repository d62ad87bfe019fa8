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
from torch.utils.checkpoint import checkpoint

JOB: dict[str, Any] = json.loads(os.environ["JOB"])
PRECISION: str = JOB["precision"]


def _built() -> Any:  # noqa: ANN401 - which class it is, the job says
    """The model on the card, its weights made in their type; beside adapters autocast finds them in bf16."""
    narrow = PRECISION == "bf16" or (PRECISION == "bf16-mixed" and "lora" in JOB)
    name: str = JOB["model"]
    head = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    config = getattr(transformers, f"{name}Config")(**JOB["config"], attn_implementation=JOB.get("attention", "sdpa"))
    torch.set_default_dtype(torch.bfloat16 if narrow else torch.float32)
    try:
        with torch.device("cuda"):
            return getattr(transformers, name + head)(config)
    finally:
        torch.set_default_dtype(torch.float32)


def _ids() -> torch.Tensor:
    return torch.randint(0, JOB["config"]["vocab_size"], (JOB["batch"], JOB["length"]), device="cuda")


class Lion(torch.optim.Optimizer):
    """One momentum; the update is the sign of a mixture (arXiv 2302.06675, algorithm 2), tensor by tensor."""

    def __init__(self, parameters: Any) -> None:  # noqa: ANN401 - what every optimizer takes
        super().__init__(parameters, {"lr": 1e-4})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override] # there is no closure to answer for
        for group in self.param_groups:
            for parameter in group["params"]:
                state, gradient = self.state[parameter], parameter.grad
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"]
                parameter.mul_(1 - group["lr"] * 0.01)
                update = momentum * 0.9 + gradient * 0.1
                parameter.add_(update.sign_(), alpha=-group["lr"])
                momentum.mul_(0.99).add_(gradient, alpha=0.01)


def _chunked(model: Any, ids: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - as above
    """The output layer and the loss in 8 chunks of tokens, each made again in the backward pass."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    rows, wanted = hidden.reshape(-1, hidden.shape[-1]).chunk(8), ids.reshape(-1).chunk(8)

    def loss(part: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model.lm_head(part).float(), right, reduction="sum")

    parts = [checkpoint(loss, part, right, use_reentrant=False) for part, right in zip(rows, wanted, strict=True)]
    return torch.stack(parts).sum() / ids.numel()


def train() -> None:
    """Two steps of AdamW, or of Lion."""
    model = _built()
    if JOB.get("checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if "lora" in JOB:
        peft: Any = import_module("peft")  # the other jobs do without
        model = peft.get_peft_model(model, peft.LoraConfig(**JOB["lora"]))
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer: torch.optim.Optimizer = Lion(trained) if JOB.get("lion") else torch.optim.AdamW(trained)
    for _ in range(2):
        ids = _ids()
        labels = ids.clone()
        mixed = PRECISION == "bf16-mixed"
        with torch.autocast("cuda", torch.bfloat16) if mixed else contextlib.nullcontext():
            if JOB.get("chunked"):
                loss = _chunked(model, ids)
            else:
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
