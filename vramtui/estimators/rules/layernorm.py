"""A layer norm written out by hand in one line: what is left of its intermediates when the line is done."""

from msgspec import structs

from vramtui.core.schema.rule_inputs import LayerNormRule
from vramtui.estimators.rules.base import Rule, RuleSheet
from vramtui.estimators.rules.tape import EXPERIMENTS, RuleEvents

SOURCE = f"{EXPERIMENTS}; y = (x - mean) / (std + eps) * w"


def compute(inputs: LayerNormRule) -> RuleSheet:
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
    kept = "until the backward pass has used it" if inputs.mode == "train" else passing
    tape.tensor("normalised x", "activations", shape, dtype, kept)
    tape.free("x - mean", "std + eps")
    tape.tensor("y", "activations", shape, dtype, "from the forward pass on")
    if inputs.mode == "inference":
        tape.free("normalised x")
    tape.mark("forward")
    sheet = tape.sheet(SOURCE, "One factor w and no bias; no backward pass.")
    if inputs.mode == "train":
        other = compute(structs.replace(inputs, mode="inference")).timeline[-1].allocated
        sheet.beside("forward in inference mode", "process", other, f"{other:,} B, without the normalised x")
    return sheet


RULE = Rule(id="layernorm", title="layer norm by hand", source=SOURCE, takes=LayerNormRule, compute=compute)
