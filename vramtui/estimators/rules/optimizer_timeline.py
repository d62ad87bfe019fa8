"""Training steps of one linear layer, and what the optimizer adds to them."""

from vramtui.core.schema.rule_inputs import OptimizerTimelineRule
from vramtui.estimators.rules.base import Rule, RuleSheet
from vramtui.estimators.rules.tape import EXPERIMENTS, RuleEvents

SOURCE = f"{EXPERIMENTS}; states as torch.optim keeps them"
STATES = {"sgd": (), "momentum": ("momentum buffer",), "adam": ("exp_avg", "exp_avg_sq")}
STATES["adamw"] = STATES["adam"]


def compute(inputs: OptimizerTimelineRule) -> RuleSheet:
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
        SOURCE,
        "No cuBLAS workspace, and none of the optimizer's temporaries.",
        "The output is let go when the optimizer step is done; the optimizer's step counters are on the host.",
        "zero_grad sets gradients to None.",
    )


RULE = Rule(
    id="optimizer-timeline",
    title="training steps with an optimizer",
    source=SOURCE,
    takes=OptimizerTimelineRule,
    compute=compute,
)
