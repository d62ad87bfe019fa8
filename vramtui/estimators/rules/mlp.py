"""Linear, ReLU, Linear, Sigmoid: what each pass holds, and what inference mode lets go."""

from msgspec import structs

from vramtui.core.schema.rule_inputs import MlpRule
from vramtui.estimators.rules.base import Rule, RuleSheet
from vramtui.estimators.rules.linear import BACKWARD_WORKSPACE, FORWARD_WORKSPACE, SOURCE, hold_workspace
from vramtui.estimators.rules.tape import RuleEvents


def compute(inputs: MlpRule) -> RuleSheet:
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
    kept = "until the backward pass has used it" if inputs.mode == "train" else "until the next layer has read it"
    steps = (
        ("linear 1", narrow, "until ReLU has read it"),
        ("ReLU", narrow, kept),
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
    sheet = tape.sheet(SOURCE, "Between layers only the newest result has a name, as in nn.Sequential.")
    if inputs.mode == "train":
        other = compute(structs.replace(inputs, mode="inference")).timeline[-1].allocated
        sheet.beside(
            "forward in inference mode",
            "process",
            other,
            f"{other:,} B, without ReLU's result: no layer keeps anything for a backward pass",
        )
    return sheet


RULE = Rule(id="mlp", title="two linear layers, step by step", source=SOURCE, takes=MlpRule, compute=compute)
