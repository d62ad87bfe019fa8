"""Random training scripts from a grammar: layers, norms, attention, losses, optimizers, precisions, cards.

A script is a list of `Step`s over a tensor x of shape (b, s, h): b sequences of s tokens, h numbers each.
"""

import random
from collections.abc import Callable, Iterator

import msgspec

DEVICES = ("H200", "A100-80GB", "T4", "RTX3090", "RTX4090")
ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid", "softplus", "leaky_relu", "elu", "hardswish", "mish")
POINTWISE = ("x = x * x", "x = x + 1", "x = x.exp()", "x = x.abs().sqrt()", "x = x.softmax(-1)", "x = x.cumsum(1)")
SHAPES = (
    "x = x.transpose(1, 2).contiguous().transpose(1, 2)",
    "x = torch.cat([x, x], 1)[:, ::2]",
    "x = x.flip(1)",
    "x = x - x.mean(1, keepdim=True)",
    "x = x.reshape(-1, x.shape[-1]).view(x.shape)",
    "x = x / x.norm(dim=-1, keepdim=True)",
)
LOSSES = (
    "F.mse_loss(x, torch.zeros_like(x))",
    "F.mse_loss(x, torch.zeros_like(x), reduction='sum')",
    "F.smooth_l1_loss(x, torch.zeros_like(x))",
    "F.huber_loss(x, torch.zeros_like(x))",
    "F.l1_loss(x, torch.zeros_like(x))",
    "F.binary_cross_entropy_with_logits(x, torch.zeros_like(x))",
    "F.cross_entropy(x.flatten(0, 1), torch.zeros(x[..., 0].numel(), dtype=torch.long, device='cuda'))",
    "F.kl_div(x.log_softmax(-1), torch.zeros_like(x), reduction='batchmean')",
    "x.float().pow(2).mean()",
    "x.sum()",
)
OPTIMIZERS = (
    "SGD(P, lr=1e-3)",
    "SGD(P, lr=1e-3, momentum=0.9)",
    "Adam(P)",
    "AdamW(P)",
    "AdamW(P, fused=True)",
    "AdamW(P, foreach=False)",
    "AdamW(P, amsgrad=True)",
    "RMSprop(P)",
    "Adagrad(P)",
    "Adafactor(P)",
)
PRECISIONS = ("fp32", "fp32", "bf16", "bf16-autocast", "bf16-autocast", "fp16-autocast")


class Step(msgspec.Struct, frozen=True):
    """One line or more of a model: `made` stands in its constructor, `does` in its forward pass."""

    made: str
    does: str


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One script to be, with its card. Sizes are those of x."""

    device: str
    batch: int
    tokens: int
    width: int
    precision: str
    optimizer: str
    loss: str
    steps: tuple[Step, ...]
    accumulation: int = 1
    checkpointed: bool = False

    def script(self) -> str:
        """The script as text: two optimizer steps."""
        made = "\n".join(f"        {step.made.replace('@', str(i))}" for i, step in enumerate(self.steps) if step.made)
        does = "\n".join(f"        {step.does.replace('@', str(i))}" for i, step in enumerate(self.steps))
        kind, _, autocast = self.precision.partition("-")
        dtype = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}[kind]
        weights = "torch.float32" if autocast else dtype
        call = "checkpoint(model, x, use_reentrant=False)" if self.checkpointed else "model(x)"
        return TEMPLATE.format(
            made=made or "        pass",
            does=does,
            weights=weights,
            dtype=dtype,
            autocast=bool(autocast),
            call=call,
            shape=f"{self.batch}, {self.tokens}, {self.width}",
            **{name: getattr(self, name) for name in ("width", "loss", "optimizer", "accumulation")},
        )


TEMPLATE = """import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear({width}, {width})
{made}

    def forward(self, x):
        x = self.first(x)
{does}
        return x


model = Model().to("cuda", {weights})
P = list(model.parameters())
optimizer = torch.optim.{optimizer}
for _ in range(2):
    for _ in range({accumulation}):
        x = torch.randn({shape}, device="cuda", dtype={weights})
        with torch.autocast("cuda", {dtype}, enabled={autocast}):
            x = {call}
            loss = {loss}
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""


def random_case(seed: int) -> Case:
    """The case of a number, always the same one."""
    chance = random.Random(seed)
    width = chance.choice((64, 96, 128, 250, 256, 512, 768))
    made: list[Step] = []
    wide = width
    for _ in range(chance.randint(1, 6)):
        step, wide = chance.choice(_KINDS)(chance, wide)
        made.append(step)
    device = chance.choice(DEVICES)
    precision = chance.choice(PRECISIONS)
    return Case(
        device=device,
        batch=chance.choice((1, 2, 4, 8, 16)),
        tokens=chance.choice((1, 16, 63, 128, 256, 512)),
        width=width,
        precision="fp32" if device == "T4" and precision.startswith("bf16") else precision,
        optimizer=chance.choice(OPTIMIZERS),
        loss=chance.choice(LOSSES),
        steps=tuple(made),
        accumulation=chance.choice((1, 1, 1, 2)),
        checkpointed=chance.random() < 0.15,
    )


def _linear(chance: random.Random, width: int) -> tuple[Step, int]:
    to = chance.choice((width, 2 * width, 4 * width, 64, 250, 1000))
    bias = chance.random() < 0.7
    return Step(f"self.l@ = nn.Linear({width}, {to}, bias={bias})", "x = self.l@(x)"), to


def _gated(_chance: random.Random, width: int) -> tuple[Step, int]:
    made = f"self.g@, self.u@ = nn.Linear({width}, {2 * width}), nn.Linear({width}, {2 * width}, bias=False)"
    return Step(made, "x = F.silu(self.g@(x)) * self.u@(x)"), 2 * width


def _activation(chance: random.Random, width: int) -> tuple[Step, int]:
    name = chance.choice(ACTIVATIONS)
    inplace = ", inplace=True" if name in {"relu", "silu", "elu"} and chance.random() < 0.3 else ""
    return Step("", f"x = F.{name}(x{inplace})" if not inplace else f"x = F.{name}(x + 0{inplace})"), width


def _norm(chance: random.Random, width: int) -> tuple[Step, int]:
    if chance.random() < 0.3:
        return Step(f"self.w@ = nn.Parameter(torch.ones({width}))", _MANUAL_NORM), width
    kind = chance.choice(("LayerNorm", "RMSNorm"))
    return Step(f"self.n@ = nn.{kind}({width})", "x = self.n@(x)"), width


_MANUAL_NORM = "x = self.w@ * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)"


def _dropout(chance: random.Random, width: int) -> tuple[Step, int]:
    return Step("", f"x = F.dropout(x, {chance.choice((0.1, 0.5))})"), width


def _line(chance: random.Random, width: int) -> tuple[Step, int]:
    return Step("", chance.choice(POINTWISE + SHAPES)), width


def _residual(chance: random.Random, width: int) -> tuple[Step, int]:
    made = f"self.r@, self.s@ = nn.Linear({width}, {2 * width}), nn.Linear({2 * width}, {width})"
    return Step(made, f"x = x + self.s@(F.{chance.choice(ACTIVATIONS)}(self.r@(x)))"), width


def _attention(chance: random.Random, width: int) -> tuple[Step, int]:
    heads = chance.choice([n for n in (1, 2, 4, 8) if width % n == 0])
    made = f"self.q@, self.o@ = nn.Linear({width}, {3 * width}), nn.Linear({width}, {width})"
    split = f"q, k, v = self.q@(x).unflatten(-1, (3, {heads}, -1)).permute(2, 0, 3, 1, 4)"
    mask, dropout = chance.choice(_MASKS), chance.choice(("0.0", "0.0", "0.1", "0.125"))
    core = f"F.scaled_dot_product_attention(q, k, v{mask}, dropout_p={dropout})"
    if chance.random() < 0.25:
        core = f"F.dropout((q.matmul(k.mT) / {width // heads}**0.5).softmax(-1), {dropout}).matmul(v)"
    return Step(made, f"{split}; x = x + self.o@({core}.transpose(1, 2).flatten(2))"), width


_MASKS = (
    "",
    "",
    ", is_causal=True",
    ", attn_mask=torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device='cuda')",
    ", attn_mask=torch.zeros(x.shape[1], x.shape[1], dtype=q.dtype, device='cuda')",
)
_KINDS: tuple[Callable[[random.Random, int], tuple[Step, int]], ...] = (
    _linear, _linear, _gated, _activation, _activation, _norm, _norm, _dropout, _line, _line, _residual, _attention,
    _attention,
)  # fmt: skip


def smaller(case: Case) -> Iterator[Case]:
    """The same case with one thing less, the boldest first. Some of them may not run."""
    replace = msgspec.structs.replace
    for at in range(len(case.steps)):
        yield replace(case, steps=case.steps[:at] + case.steps[at + 1 :])
    for name, plain in (("accumulation", 1), ("checkpointed", False), ("precision", "fp32")):
        if getattr(case, name) != plain:
            yield replace(case, **{name: plain})
    for name, plain in (("optimizer", "SGD(P, lr=1e-3)"), ("loss", "x.sum()"), ("device", "H200")):
        if getattr(case, name) != plain:
            yield replace(case, **{name: plain})
    for name in ("batch", "tokens"):
        if getattr(case, name) > 1:
            yield replace(case, **{name: getattr(case, name) // 2})
