"""What PyTorch holds step by step, in whole blocks of 512 bytes: a few tensors, one linear layer, two of them, a layer
norm, and an optimizer.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from msgspec import structs

from vramtui.core.base.units import ITEM_BYTES
from vramtui.core.estimate.estimate import Moment, Phase
from vramtui.core.estimate.ledger import Category
from vramtui.core.schema.rule_inputs.steps import BlocksRule, LayerNormRule, LinearRule, MlpRule, OptimizerTimelineRule
from vramtui.estimators.rules.base import ALWAYS, Rule, RuleSheet
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, rounded

EXPERIMENTS = "Simple GPU memory allocation experiments every ML engineer should do (medium.com/@akhilez, 2024)"


@dataclass
class _Tensor:
    line: Category
    size: int
    formula: str
    lifetime: str


class RuleEvents:
    """A record of holding and letting go. Only what is held after each event counts, as the published tables count."""

    def __init__(self) -> None:
        self._tensors: dict[str, _Tensor] = {}
        self._live: list[str] = []
        self._peak_here = 0
        self._peak: tuple[int, tuple[str, ...], Phase, int] = (0, (), "build", 0)
        self._waiting = True
        self.timeline: list[Moment] = []

    @property
    def allocated(self) -> int:
        """Bytes held now."""
        return sum(self._tensors[name].size for name in self._live)

    def tensor(self, name: str, line: Category, shape: tuple[int, ...], dtype: str, lifetime: str = ALWAYS) -> None:
        """Hold a tensor of `shape`, in whole blocks."""
        size = prod(shape) * ITEM_BYTES[dtype]
        blocks = rounded(size) // MIN_BLOCK
        numbers = " x ".join(str(side) for side in shape) or "1"
        formula = f"{numbers} x {ITEM_BYTES[dtype]} B = {size:,} B, so {blocks} x {MIN_BLOCK} B"
        self.hold(name, line, rounded(size), formula, lifetime)

    def hold(self, name: str, line: Category, size: int, formula: str, lifetime: str = ALWAYS) -> None:
        """Hold `size` bytes under `name`; a name let go before may be held again."""
        self._tensors[name] = _Tensor(line, size, formula, lifetime)
        self._live.append(name)
        self._peak_here = max(self._peak_here, self.allocated)

    def free(self, *names: str) -> None:
        """Let go of what is held of `names`."""
        self._live = [name for name in self._live if name not in names]

    def mark(self, phase: Phase, step: int = 0) -> None:
        """The end of a phase."""
        categories: dict[str, int] = {}
        for name in self._live:
            tensor = self._tensors[name]
            categories[tensor.line] = categories.get(tensor.line, 0) + tensor.size
        self.timeline.append(
            Moment(
                phase=phase,
                step=step,
                allocated=self.allocated,
                peak_allocated=self._peak_here,
                categories=categories,
            )
        )
        if self.allocated > self._peak[0]:
            self._peak = (self.allocated, tuple(self._live), phase, step)
        self._peak_here = self.allocated

    def sheet(self, source: str, *assumptions: str) -> RuleSheet:
        """The parts of everything ever held; those alive at the largest mark make the total."""
        _, alive, phase, step = self._peak
        sheet = RuleSheet(
            source, phase, "Counted at the end of each phase; what lives only inside one is not.", *assumptions
        )
        sheet.step = step
        sheet.timeline = self.timeline
        for name, tensor in self._tensors.items():
            sheet.add(
                name,
                tensor.line,
                tensor.size,
                tensor.formula,
                at_peak=tensor.size if name in alive else 0,
                lifetime=tensor.lifetime,
                blocks=tensor.size // MIN_BLOCK,
            )
        return sheet


BLOCKS_SOURCE = f"{EXPERIMENTS}; kMinBlockSize = 512 (c10/core/AllocatorConfig.h)"


def blocks(inputs: BlocksRule) -> RuleSheet:
    """ceil(elements x bytes / 512) x 512 for each tensor."""
    sheet = RuleSheet(
        BLOCKS_SOURCE, "build", "Requests of more than 1 MiB may get a block that was not split; that is left out."
    )
    item = ITEM_BYTES[inputs.dtype]
    for index, shape in enumerate(inputs.shapes, 1):
        asked = prod(shape) * item
        given = rounded(asked)
        sheet.add(
            f"tensor {index}",
            "inputs",
            given,
            f"{shape} {inputs.dtype}: {prod(shape):,} x {item} B = {asked:,} B; {given // MIN_BLOCK} x {MIN_BLOCK} B",
            blocks=given // MIN_BLOCK,
        )
    return sheet


LINEAR_SOURCE = (
    f"{EXPERIMENTS}; cuBLAS workspace of 4096·1024·2 + 16·1024·8 = 8,519,680 B per thread and stream before compute "
    "capability 9.0 (aten/src/ATen/cuda/CublasHandlePool.cpp)"
)
FORWARD_WORKSPACE = "cuBLAS workspace, main thread"
BACKWARD_WORKSPACE = "cuBLAS workspace, autograd's thread"


def hold_workspace(tape: RuleEvents, name: str, size: int) -> None:
    """The workspace of one thread, from its first matrix product until it is cleared."""
    if size:
        tape.hold(name, "workspaces", size, f"{size:,} B, at the thread's first matrix product", "until cleared")


def linear(inputs: LinearRule) -> RuleSheet:
    """model, input, forward (output, one workspace), backward (gradients, a second one), delete, clear."""
    tape = RuleEvents()
    out, dtype = inputs.out_features, inputs.dtype
    shapes = {"weight": (out, inputs.in_features)} | ({"bias": (out,)} if inputs.bias else {})
    for name, shape in shapes.items():
        tape.tensor(name, "weights", shape, dtype, "until deleted")
    tape.mark("build")
    tape.tensor("x", "inputs", (inputs.batch_size, inputs.in_features), dtype, "until deleted")
    tape.mark("input")
    tape.tensor("y", "activations", (inputs.batch_size, out), dtype, "from the forward pass until deleted")
    hold_workspace(tape, FORWARD_WORKSPACE, inputs.workspace)
    tape.mark("forward")
    hold_workspace(tape, BACKWARD_WORKSPACE, inputs.workspace)
    for name, shape in shapes.items():
        tape.tensor(f"gradient of {name}", "gradients", shape, dtype, "from the backward pass until deleted")
    tape.mark("backward")
    tape.free(*shapes, *(f"gradient of {name}" for name in shapes), "x", "y")
    tape.mark("delete")
    tape.free(FORWARD_WORKSPACE, BACKWARD_WORKSPACE)
    tape.mark("clear")
    return tape.sheet(LINEAR_SOURCE, "The loss is a sum whose one block is let go after the backward pass.")


def mlp(inputs: MlpRule) -> RuleSheet:
    """ReLU and Sigmoid keep their results for the backward pass, the linear layers their inputs; inference none."""
    tape = RuleEvents()
    wide, narrow, out, batch = inputs.in_features, inputs.hidden_features, inputs.out_features, inputs.batch_size
    shapes = {"weight 1": (narrow, wide), "bias 1": (narrow,), "weight 2": (out, narrow), "bias 2": (out,)}
    for name, shape in shapes.items():
        tape.tensor(name, "weights", shape, inputs.dtype)
    tape.mark("build")
    tape.tensor("x", "inputs", (batch, wide), inputs.dtype)
    tape.mark("input")
    hold_workspace(tape, FORWARD_WORKSPACE, inputs.workspace)
    result_lifetime = (
        "until the backward pass has used it" if inputs.mode == "train" else "until the next layer has read it"
    )
    steps = (
        ("linear 1", narrow, "until ReLU has read it"),
        ("ReLU", narrow, result_lifetime),
        ("linear 2", out, "until Sigmoid has read it"),
        ("y", out, "from the forward pass on; Sigmoid's backward uses it"),
    )
    before = ""
    for name, width, lifetime in steps:
        tape.tensor(name, "activations", (batch, width), inputs.dtype, lifetime)
        if before and (before != "ReLU" or inputs.mode == "inference"):
            tape.free(before)
        before = name
    tape.mark("forward")
    if inputs.mode == "train":
        hold_workspace(tape, BACKWARD_WORKSPACE, inputs.workspace)
        for name, shape in shapes.items():
            tape.tensor(f"gradient of {name}", "gradients", shape, inputs.dtype, "from the backward pass on")
        tape.free("ReLU")
        tape.mark("backward")
    sheet = tape.sheet(LINEAR_SOURCE, "Between layers only the newest result has a name, as in nn.Sequential.")
    if inputs.mode == "train":
        other = mlp(structs.replace(inputs, mode="inference")).timeline[-1].allocated
        sheet.mention(
            "forward in inference mode",
            "process",
            other,
            f"{other:,} B, without ReLU's result: no layer keeps anything for a backward pass",
        )
    return sheet


LAYERNORM_SOURCE = f"{EXPERIMENTS}; y = (x - mean) / (std + eps) * w"


def layernorm(inputs: LayerNormRule) -> RuleSheet:
    """x, w, y, and the normalised x, which the gradient of w needs; mean and deviation are let go on the way."""
    tape = RuleEvents()
    shape, dtype = inputs.shape, inputs.dtype
    rows = (*shape[:-1], 1)
    passing = "until the next operation has read it"
    tape.tensor("w", "weights", (shape[-1],), dtype)
    tape.mark("build")
    tape.tensor("x", "inputs", shape, dtype)
    tape.mark("input")
    tape.tensor("mean", "temporaries", rows, dtype, passing)
    tape.tensor("x - mean", "temporaries", shape, dtype, passing)
    tape.free("mean")
    tape.tensor("std", "temporaries", rows, dtype, passing)
    tape.tensor("std + eps", "temporaries", rows, dtype, passing)
    tape.free("std")
    lifetime = "until the backward pass has used it" if inputs.mode == "train" else passing
    tape.tensor("normalised x", "activations", shape, dtype, lifetime)
    tape.free("x - mean", "std + eps")
    tape.tensor("y", "activations", shape, dtype, "from the forward pass on")
    if inputs.mode == "inference":
        tape.free("normalised x")
    tape.mark("forward")
    sheet = tape.sheet(LAYERNORM_SOURCE, "One factor w and no bias; no backward pass.")
    if inputs.mode == "train":
        other = layernorm(structs.replace(inputs, mode="inference")).timeline[-1].allocated
        sheet.mention("forward in inference mode", "process", other, f"{other:,} B, without the normalised x")
    return sheet


OPTIMIZER_SOURCE = f"{EXPERIMENTS}; states as torch.optim keeps them"
STATES = {"sgd": (), "momentum": ("momentum buffer",), "adam": ("exp_avg", "exp_avg_sq")}
STATES["adamw"] = STATES["adam"]


def training_steps(inputs: OptimizerTimelineRule) -> RuleSheet:
    """The input once; per step forward, backward, optimizer step, zero_grad; the states are made in the first step."""
    tape = RuleEvents()
    out, dtype = inputs.out_features, inputs.dtype
    shapes = {"weight": (out, inputs.in_features)} | ({"bias": (out,)} if inputs.bias else {})
    gradients = {f"gradient of {name}": shape for name, shape in shapes.items()}
    for name, shape in shapes.items():
        tape.tensor(name, "weights", shape, dtype)
    tape.mark("build")
    tape.tensor("x", "inputs", (inputs.batch_size, inputs.in_features), dtype)
    tape.mark("input")
    for step in range(inputs.steps):
        tape.tensor("y", "activations", (inputs.batch_size, out), dtype, "from forward until after the optimizer step")
        tape.mark("forward", step)
        for name, shape in gradients.items():
            tape.tensor(name, "gradients", shape, dtype, "from backward until zero_grad")
        tape.mark("backward", step)
        if step == 0:
            for state in STATES[inputs.optimizer]:
                for name, shape in shapes.items():
                    tape.tensor(f"{state} of {name}", "optimizer", shape, dtype, "from the first optimizer step on")
        tape.free("y")
        tape.mark("step", step)
        tape.free(*gradients)
        tape.mark("zero_grad", step)
    return tape.sheet(
        OPTIMIZER_SOURCE,
        "No cuBLAS workspace, and none of the optimizer's temporaries.",
        "The output is let go when the optimizer step is done; the optimizer's step counters are on the host.",
        "zero_grad sets gradients to None.",
    )


RULES: tuple[Rule[Any], ...] = (
    Rule("blocks", "512-byte blocks", BLOCKS_SOURCE, BlocksRule, blocks),
    Rule("linear", "linear layer, step by step", LINEAR_SOURCE, LinearRule, linear),
    Rule("mlp", "two linear layers, step by step", LINEAR_SOURCE, MlpRule, mlp),
    Rule("layernorm", "layer norm by hand", LAYERNORM_SOURCE, LayerNormRule, layernorm),
    Rule(
        "optimizer-timeline",
        "training steps with an optimizer",
        OPTIMIZER_SOURCE,
        OptimizerTimelineRule,
        training_steps,
    ),
)
