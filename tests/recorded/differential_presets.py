"""The recorded random scripts as presets, where a list of layers can say them, estimated beside their true peaks.

The scripts are in `tests/golden/differential.json`. A preset means a
loop in which the batch stays while it is worked on and the model's output is let go with the loss; the scripts do it
the other way round, so that each is run once more with that loop, and `job` holds those peaks.
"""

import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.golden_workloads import RECORDED
from tests.recorded.differential import GOLDEN
from vramtui.core.estimate.devices import card
from vramtui.core.schema.layer_models import (
    Act,
    Dropout,
    Join,
    Layer,
    Linear,
    Mark,
    Norm,
    Repeat,
    SelfAttention,
    SequentialModel,
    Take,
)
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.simulated import SIMULATED

ACTS = ("relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "hardswish")
LOSSES = {
    "F.mse_loss(x, torch.zeros_like(x))": "mse",
    "F.mse_loss(x, torch.zeros_like(x), reduction='sum')": "mse",
    "x.sum()": "sum",
    "F.cross_entropy(x.flatten(0, 1), torch.zeros(x[..., 0].numel(), dtype=torch.long, device='cuda'))": (
        "cross_entropy"
    ),
}
OPTIMIZERS: dict[str, dict[str, str]] = {
    "SGD(P, lr=1e-3)": {"optimizer": "sgd"},
    "SGD(P, lr=1e-3, momentum=0.9)": {"optimizer": "momentum"},
    "Adam(P)": {"optimizer": "adam"},
    "AdamW(P)": {"optimizer": "adamw"},
    "AdamW(P, fused=True)": {"optimizer": "adamw", "optimizer_implementation": "fused"},
    "AdamW(P, foreach=False)": {"optimizer": "adamw", "optimizer_implementation": "loop"},
    "AdamW(P, amsgrad=True)": {"optimizer": "amsgrad"},
    "RMSprop(P)": {"optimizer": "rmsprop"},
    "Adagrad(P)": {"optimizer": "adagrad"},
    "Adafactor(P)": {"optimizer": "adafactor"},
}


class UnsaidError(Exception):
    """A line of a script that no preset says."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One case that a preset says: estimates less the truth, as shares of it."""

    number: int
    allocated: float
    reserved: float
    workload: Workload
    device: str


class Reader:
    """Reads one script's model line by line; `eager` once attention is spelt out, None before any."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.eager: bool | None = None
        self.made = dict(_modules(script))

    def layers(self) -> tuple[Layer, ...]:
        """Every layer in order.

        Raises:
            UnsaidError: one is nothing that a preset says.
        """
        body = self.script.partition("def forward(self, x):\n")[2].partition("        return x")[0]
        return tuple(layer for line in body.splitlines() for layer in self._line(line.strip()))

    def _line(self, line: str) -> list[Layer]:
        for pattern, read in READERS:
            found = re.fullmatch(pattern, line)
            if found:
                return read(self, *found.groups())
        raise UnsaidError(line)

    def linear(self, name: str) -> Linear:
        """The linear layer called so."""
        kind, numbers = self.made[name]
        assert kind == "Linear"
        parts = numbers.split(", ")
        return Linear(out_features=int(parts[1]), bias="bias=False" not in numbers)

    def module(self, name: str) -> list[Layer]:
        """A layer that is called on x."""
        kind, _ = self.made[name]
        return [self.linear(name) if kind == "Linear" else Norm(norm="layer" if kind == "LayerNorm" else "rms")]

    def act(self, name: str) -> list[Layer]:
        """An activation into a new tensor."""
        if name not in ACTS:
            raise UnsaidError(f"F.{name}")
        return [Act(act=name)]  # type: ignore[arg-type]  # it is one of them

    def gated(self, gate: str, up: str) -> list[Layer]:
        """Two projections, one of which is squeezed and multiplied with the other."""
        return [
            Mark(name="in"), self.linear(gate), Act(act="silu"), Mark(name="gate"), Take(name="in"), self.linear(up),
            Join(names=("gate",), how="multiply"),
        ]  # fmt: skip

    def residual(self, second: str, act: str, first: str) -> list[Layer]:
        """Two linear layers beside what goes in."""
        inner = [self.linear(first), *self.act(act), self.linear(second)]
        return [Mark(name="in"), *inner, Join(names=("in",))]

    def attention(self, heads: str, core: str) -> list[Layer]:
        """Self-attention beside what goes in."""
        eager = "softmax" in core
        if self.eager not in {None, eager}:
            raise UnsaidError("attention of two kinds")
        self.eager = eager
        if "attn_mask" in core:
            raise UnsaidError("attn_mask")
        if not re.search(r"dropout_p=0\.0|, 0\.0\)", core):
            raise UnsaidError("attention dropout")
        attention = SelfAttention(num_heads=int(heads), causal="is_causal=True" in core)
        return [Mark(name="in"), attention, Join(names=("in",))]


READERS: tuple[tuple[str, Callable[..., list[Layer]]], ...] = (
    (r"x = self\.(\w+)\(x\)", Reader.module),
    (r"x = F\.(\w+)\(x\)", Reader.act),
    (r"x = F\.(relu)\(x \+ 0, inplace=True\)", Reader.act),
    (r"x = F\.silu\(self\.(\w+)\(x\)\) \* self\.(\w+)\(x\)", Reader.gated),
    (r"x = F\.dropout\(x, ([\d.]+)\)", lambda _, chance: [Dropout(probability=float(chance))]),
    (r"x = x \+ self\.(\w+)\(F\.(\w+)\(self\.(\w+)\(x\)\)\)", Reader.residual),
    (r"x = x\.softmax\(-1\)", lambda _: [Act(act="softmax")]),
    (r"x = x \* x", lambda _: [Mark(name="in"), Join(names=("in",), how="multiply")]),
    (r"x = x\.reshape\(-1, x\.shape\[-1\]\)\.view\(x\.shape\)", lambda _: []),
    ((r"q, k, v = self\.\w+\(x\)\.unflatten\(-1, \(3, (\d+), -1\)\)\.permute\(2, 0, 3, 1, 4\); "
        r"x = x \+ self\.\w+\((.*)\.transpose\(1, 2\)\.flatten\(2\)\)"), Reader.attention),
)  # fmt: skip


def _modules(script: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each module's name with its class and arguments."""
    for line in re.findall(r"^        (self\.\w+(?:, self\.\w+)*) = (nn\..*)$", script, re.MULTILINE):
        names = re.findall(r"self\.(\w+)", line[0])
        yield from zip(names, re.findall(r"nn\.(\w+)\(([^()]*)\)", line[1]), strict=False)


def _found(pattern: str, script: str) -> tuple[str, ...]:
    found = re.search(pattern, script)
    assert found is not None
    return found.groups()


def workload_of(script: str) -> Workload:
    """The script as a preset says it.

    Raises:
        UnsaidError: it does something that no preset says.
    """
    reader = Reader(script)
    layers: tuple[Layer | Repeat, ...] = reader.layers()
    (loss,) = _found(r"loss = (.*)\n", script)
    if loss not in LOSSES:
        raise UnsaidError(loss.partition("(")[0] if loss.startswith("F.") else loss)
    (optimizer,) = _found(r"torch\.optim\.(.*)\n", script)
    batch, tokens, width = (int(size) for size in _found(r"torch\.randn\((\d+), (\d+), (\d+)", script))
    (weights,) = _found(r'\.to\("cuda", torch\.(\w+)\)', script)
    kind, autocast = _found(r'autocast\("cuda", torch\.(\w+), enabled=(\w+)\)', script)
    short = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    checkpointed = "= checkpoint(" in script
    if checkpointed:
        layers = (Repeat(layers=layers),)  # type: ignore[arg-type]  # no repeat is among them
    options: dict[str, Any] = {
        "torch": RECORDED,
        "batch_size": batch,
        "precision": f"{short[kind]}-mixed" if autocast == "True" else short[weights],
        "gradient_accumulation_steps": int(_found(r"\n    for _ in range\((\d+)\)", script)[0]),
        "checkpointing": "full" if checkpointed else "none",
        "attention": "eager" if reader.eager else "flash",
        **OPTIMIZERS[optimizer],
    }
    model = SequentialModel(input_shape=(tokens, width), layers=layers, loss=LOSSES[loss])  # type: ignore[arg-type]  # one of them
    return Workload(model=model, run=TrainRun(**options))


def job_script(script: str) -> str:
    """The script with the loop that a preset means: batch and targets stay, the model's output goes with its loss."""
    workload = workload_of(script)
    model, run = workload.model, workload.run
    assert isinstance(model, SequentialModel)
    assert isinstance(run, TrainRun)
    head, _, loop = script.partition("for _ in range(2):\n")
    (loss,) = _found(r"loss = (.*)\n", loop)
    (call,) = _found(r"            x = (.*)\n", loop)
    (autocast,) = _found(r"with (torch\.autocast.*):\n", loop)
    (dtype,) = _found(r"dtype=(torch\.\w+)\)\n", loop)
    tokens, width = model.input_shape
    for layer in _unpacked(model.layers):
        width = layer.out_features if isinstance(layer, Linear) else width
    targets = {
        "cross_entropy": f"torch.zeros({run.batch_size * tokens}, dtype=torch.long, device='cuda')",
        "sum": "None",
    }
    given = f"torch.zeros({run.batch_size}, {tokens}, {width}, dtype={dtype}, device='cuda')"
    loss = re.sub(r"torch\.zeros_like\(x\)|torch\.zeros\(x.*\)(?=\)$)", "y", loss)
    return head + LOOP.format(
        call=call,
        loss=loss,
        x=f"torch.randn({run.batch_size}, {tokens}, {model.input_shape[1]}, dtype={dtype}, device='cuda')",
        y=targets.get(model.loss, given),
        autocast=autocast,
        accumulation=run.gradient_accumulation_steps,
    )


LOOP = """
def loss_of(x, y):
    x = {call}
    return {loss}


for _ in range(2):
    for _ in range({accumulation}):
        x, y = {x}, {y}
        with {autocast}:
            loss = loss_of(x, y)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""


def _unpacked(layers: tuple[Layer | Repeat, ...]) -> Iterator[Layer]:
    for layer in layers:
        yield from layer.layers if isinstance(layer, Repeat) else (layer,)


def rows() -> list[dict[str, Any]]:
    """What is recorded."""
    found: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def measured() -> tuple[list[Measured], Counter[str]]:
    """Every case that a preset says beside its truth, and how often what else is done."""
    found, unsaid = [], Counter[str]()
    for number, row in enumerate(rows()):
        try:
            workload = workload_of(row["script"])
        except UnsaidError as why:
            unsaid[str(why)] += 1
            continue
        if "job" not in row:
            continue
        device = card(row["device"])
        allocated = ANALYTIC.estimate(workload, device).allocated
        reserved = SIMULATED.estimate(workload, device).reserved
        assert reserved is not None
        found.append(
            Measured(
                number=number,
                allocated=allocated / row["job"][0] - 1,
                reserved=reserved / row["job"][1] - 1,
                workload=workload,
                device=row["device"],
            )
        )
    return found, unsaid


def spread(errors: list[float]) -> tuple[float, float, float]:
    """Median, 90th percentile and the largest, without their signs."""
    sizes = sorted(abs(error) for error in errors)
    return statistics.median(sizes), sizes[int(0.9 * (len(sizes) - 1))], sizes[-1]
