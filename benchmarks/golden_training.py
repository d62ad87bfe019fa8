"""The recorded training runs as scripts: `golden_training.py NAME` trains three steps on "cuda".

Names say model, attention, precision, optimizer, checkpointing. The order of the lines in `train` is what was
recorded: the old batch and the old loss are alive while new ones are made.
"""

import contextlib
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, it finds its neighbour by the package's name
from benchmarks.golden_nets import Gpt, SpelledNorm, perceptron, resnet50

BF16 = torch.bfloat16
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Job:
    """One recorded run: what is built, what it is fed, how it is trained."""

    build: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    loss: Loss
    optimizer: str = "sgd"
    autocast: torch.dtype | None = None
    dtype: torch.dtype | None = None
    accumulate: int = 1
    cudnn: bool = True


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": functools.partial(torch.optim.SGD, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamw_fused": functools.partial(torch.optim.AdamW, fused=True),
    "adamw_loop": functools.partial(torch.optim.AdamW, foreach=False),
    "adamw_foreach": functools.partial(torch.optim.AdamW, foreach=True),
    "rmsprop": torch.optim.RMSprop,
}


def vectors(batch: int, width: int, classes: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randn(batch, width, device="cuda"), torch.randint(0, classes, (batch,), device="cuda"))


def tokens(batch: int, length: int, vocabulary: int) -> Callable[[], tuple[Tensor, Tensor]]:
    shape = (batch, length)
    return lambda: (
        torch.randint(0, vocabulary, shape, device="cuda"),
        torch.randint(0, vocabulary, shape, device="cuda"),
    )


def images(batch: int, side: int, classes: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (
        torch.randn(batch, 3, side, side, device="cuda"),
        torch.randint(0, classes, (batch,), device="cuda"),
    )


def of_classes(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y)


def of_tokens(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    logits = model(x)
    return functional.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


def of_sum(model: nn.Module, x: Tensor, _y: Tensor) -> Tensor:
    total: Tensor = model(x).sum()
    return total


def of_transformers(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    loss: Tensor = model(input_ids=x, labels=y).loss
    return loss


FUSED: dict[str, Any] = {"use_cache": False, "attn_implementation": "sdpa"}


def gpt2() -> nn.Module:
    import transformers  # noqa: PLC0415 - takes seconds, and few runs need it

    config = transformers.GPT2Config(**FUSED)
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def llama(sizes: dict[str, Any], *, checkpointed: bool = False) -> nn.Module:
    import transformers  # noqa: PLC0415 - as above

    config = transformers.LlamaConfig(vocab_size=32000, **FUSED, **sizes)
    model: Any = transformers.LlamaForCausalLM(config)
    if checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    built: nn.Module = model
    return built


SMALL = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8,
         "num_key_value_heads": 8, "max_position_embeddings": 1024}  # fmt: skip
ONE_BILLION = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
               "num_key_value_heads": 4, "max_position_embeddings": 2048}  # fmt: skip
GPTS = {"tiny": (16, (65, 128, 4, 4, 256)), "124m": (4, (50304, 768, 12, 12, 1024))}
PRECISIONS: dict[str, dict[str, Any]] = {"fp32": {}, "bf16amp": {"autocast": BF16}, "bf16": {"dtype": BF16}}


def _gpt(size: str, attention: str, precision: str, *, checkpointed: bool) -> Job:
    batch, sizes = GPTS[size]
    build = functools.partial(Gpt, *sizes, fused=attention == "sdpa", checkpointed=checkpointed)
    return Job(build, tokens(batch, sizes[-1], sizes[0]), of_tokens, "adamw", **PRECISIONS[precision])


def _transformer(build: Callable[[], nn.Module], batch: tuple[int, int, int], precision: str) -> Job:
    return Job(build, tokens(*batch), of_transformers, "adamw", **PRECISIONS[precision])


def _mlp(optimizer: str = "sgd", norm: Callable[[int], nn.Module] | None = None) -> Job:
    return Job(functools.partial(perceptron, norm), vectors(256, 1024, 10), of_classes, optimizer)


def jobs() -> dict[str, Job]:
    """Every recorded run by its name."""
    made = {
        "linear_fp32_sgd": Job(functools.partial(nn.Linear, 256, 250), vectors(1, 256, 250), of_sum),
        "linear_fp32_adamw": Job(
            functools.partial(nn.Linear, 4096, 4096), vectors(64, 4096, 4096), of_classes, "adamw"
        ),
        **{f"mlp_fp32_{name}": _mlp(name) for name in OPTIMIZERS},
        "mlp_bf16amp_adamw": replace(_mlp("adamw"), autocast=BF16),
        "mlp_bf16_adamw": replace(_mlp("adamw"), dtype=BF16),
        "mlp_accum4_adamw": replace(_mlp("adamw"), accumulate=4),
        "manualnorm_fp32_sgd": _mlp(norm=SpelledNorm),
        "layernorm_fp32_sgd": _mlp(norm=nn.LayerNorm),
        "hf_gpt2_sdpa_bf16amp_adamw": _transformer(gpt2, (4, 512, 50257), "bf16amp"),
        "hf_llama_small_sdpa_bf16_adamw": _transformer(functools.partial(llama, SMALL), (4, 512, 32000), "bf16"),
        "resnet50_native_fp32_momentum": Job(resnet50, images(16, 224, 1000), of_classes, "momentum", cudnn=False),
    }
    for end in ("", "_ckpt"):
        build = functools.partial(llama, ONE_BILLION, checkpointed=bool(end))
        made[f"hf_llama1b_sdpa_bf16_adamw{end}"] = _transformer(build, (2, 1024, 32000), "bf16")
        for size in GPTS:
            for attention in ("eager", "sdpa"):
                for precision in PRECISIONS:
                    name = f"gpt_{size}_{attention}_{precision}_adamw{end}"
                    made[name] = _gpt(size, attention, precision, checkpointed=bool(end))
    return made


def train(job: Job, steps: int = 3) -> None:
    """Train on "cuda"."""
    torch.backends.cudnn.enabled = job.cudnn
    model = job.build()
    model = model.to("cuda", job.dtype) if job.dtype else model.to("cuda")
    model.train()
    optimizer = OPTIMIZERS[job.optimizer](model.parameters(), lr=1e-3)
    for _ in range(steps):
        for _ in range(job.accumulate):
            x, y = job.batch()
            if job.dtype and x.is_floating_point():
                x = x.to(job.dtype)
            with torch.autocast("cuda", dtype=job.autocast) if job.autocast else contextlib.nullcontext():
                loss = job.loss(model, x, y)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    train(jobs()[sys.argv[1]])
