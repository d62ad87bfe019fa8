"""A mixture of experts on a tape: router, the tokens' copies for their experts, and the shared expert.

Shapes: x (b·s, h), router's scores (b·s, x) over x experts, each token takes k; an expert is (f, h) and back.
"""

from typing import TYPE_CHECKING

from vramtui.estimators.analytic.ops.decoder_builder import Writer
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds import linear_parts

if TYPE_CHECKING:
    from vramtui.models.kinds import MoeModule

ROUTING, EXPERTS = "activations: routing", "activations: experts"


def record_moe(writer: Writer, module: "MoeModule", x: Tensor) -> Tensor:
    """Each token's copies go through `per_token` experts, as one grouped product over all of them."""
    tape, ops, d = writer.tape, writer.ops, module.hidden
    copies = x.numel // d * module.per_token
    tape.group = ROUTING
    logits = ops.linear(x, (module.experts, d), "router", trained=writer.setting.trained)
    chances = ops.pointwise(ops.cast(logits, 4, "router logits in fp32"), "router softmax", saves="output")
    weights = tape.new(copies, x.itemsize, "routing weights", tracked=chances.tracked)
    where = tape.new(copies, 8, "routing indices", tracked=False)
    tape.record([chances], [weights], saved_outputs=[where], flows=[(chances, True)], workspace=rounded(copies * 4))
    tape.group = EXPERTS
    layers = linear_parts(module)
    chosen = ops.unsaved(x, "tokens for their experts", copies * d)
    y = writer.linear(chosen, layers["experts_gate_up_proj"])
    if module.gated:
        gate, up = ops.split(y, *[y.numel // 2] * 2)
        y = ops.multiply(writer.activation(gate), up, "gate x up of experts")
    else:
        y = writer.activation(y)
    y = writer.linear(y, layers["experts_down_proj"])
    y = ops.multiply(y, weights, "experts' answers, weighted")
    out = ops.unsaved(y, "experts' sum", x.numel)
    tape.touch(weights, where)
    if not module.shared:
        return out
    layers = linear_parts(module.shared_expert())
    chance = writer.activation(writer.linear(x, layers["shared_gate_proj"])) if module.gated else None
    y = writer.linear(x, layers["shared_up_proj"])
    y = ops.multiply(chance, y, "gate x up, shared") if chance is not None else writer.activation(y)
    y = writer.linear(y, layers["shared_down_proj"])
    if module.shared_gate:
        chance = ops.linear(x, (1, module.hidden), "shared_gate", trained=writer.setting.trained)
        y = ops.multiply(y, ops.pointwise(chance, "shared gate", saves="output"), "shared expert, gated")
    return ops.add(out, y, "experts and shared expert")
