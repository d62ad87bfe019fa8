"""A layer norm written out by hand: each named intermediate is a tensor, and takes a block at least."""

from vramtui.core.rule_inputs import LayerNormRule
from vramtui.estimators.rules.base import Rule, Sheet
from vramtui.estimators.rules.tape import Tape

SOURCE = (
    "512-byte blocks (c10/core/AllocatorConfig.h); (x - mean) / sqrt(variance + eps), a name for each (Ba et al. 2016)"
)


def compute(inputs: LayerNormRule) -> Sheet:
    """x, mean, variance and the result are held together before the function returns."""
    tape = Tape()
    rows = (*inputs.shape[:-1], 1)
    tape.tensor("x", "inputs", inputs.shape, inputs.dtype)
    tape.mark("input")
    local = "a local name, until the function returns"
    tape.tensor("mean", "temporaries", rows, inputs.dtype, local)
    tape.tensor("variance", "temporaries", rows, inputs.dtype, local)
    tape.tensor("result", "activations", inputs.shape, inputs.dtype, "from the function's last line on")
    tape.mark("forward")
    tape.free("mean", "variance")
    tape.mark("delete")
    return tape.sheet(SOURCE, "No weight, no bias and no gradient.")


RULE = Rule(id="layernorm", title="layer norm by hand", source=SOURCE, takes=LayerNormRule, compute=compute)
