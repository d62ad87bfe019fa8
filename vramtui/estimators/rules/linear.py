"""A linear layer, step by step, with cuBLAS's workspaces."""

from vramtui.core.schema.rule_inputs import LinearRule
from vramtui.estimators.rules.base import Rule, RuleSheet
from vramtui.estimators.rules.tape import EXPERIMENTS, RuleEvents

SOURCE = (
    f"{EXPERIMENTS}; cuBLAS workspace of 4096·1024·2 + 16·1024·8 = 8,519,680 B per thread and stream before compute "
    "capability 9.0 (aten/src/ATen/cuda/CublasHandlePool.cpp)"
)
FORWARD_WORKSPACE = "cuBLAS workspace, main thread"
BACKWARD_WORKSPACE = "cuBLAS workspace, autograd's thread"


def hold_workspace(tape: RuleEvents, name: str, size: int) -> None:
    """The workspace of one thread, from its first matrix product until it is cleared."""
    if size:
        tape.hold(name, "workspaces", size, f"{size:,} B, at the thread's first matrix product", "until cleared")


def compute(inputs: LinearRule) -> RuleSheet:
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
    return tape.sheet(SOURCE, "The loss is a sum whose one block is let go after the backward pass.")


RULE = Rule(id="linear", title="linear layer, step by step", source=SOURCE, takes=LinearRule, compute=compute)
