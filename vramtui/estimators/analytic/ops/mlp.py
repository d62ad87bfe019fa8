"""A dense MLP, and a mixture of experts, on a tape: router, the tokens' copies for their experts, the shared expert.

Shapes: x (b·s, h), between its layers (b·s, f); b batch, s tokens, h hidden, f width. A router's scores are (b·s, x)
over x experts; each token takes k.
"""

from typing import TYPE_CHECKING

from vramtui.estimators.analytic.ops.decoder_builder import Writer
from vramtui.estimators.analytic.tape.replay import MLP
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds import MlpModule, linear_parts

if TYPE_CHECKING:
    from vramtui.models.kinds import MoeModule

ROUTING, EXPERTS = "activations: routing", "activations: experts"


def record_mlp(writer: Writer, module: MlpModule, x: Tensor) -> Tensor:
    """Up and down with an activation between, or gated (SwiGLU, GeGLU)."""
    writer.tape.group = MLP
    layers = linear_parts(module)
    if not module.gated:
        y = writer.activation(writer.linear(x, layers["up_proj"]))
    elif writer.setting.liger:
        gate = writer.linear(x, layers["gate_proj"])
        y = writer.ops.liger_gated(gate, writer.linear(x, layers["up_proj"]), "gate x up")
    else:
        gate = writer.activation(writer.linear(x, layers["gate_proj"]))
        y = writer.ops.multiply(gate, writer.linear(x, layers["up_proj"]), "gate x up")
    return writer.linear(y, layers["down_proj"])


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
