"""A mixture of experts on a tape: router, the tokens' copies for their experts, and the shared expert.

Shapes: x (b·s, h), router's scores (b·s, x) over x experts, of which each token takes k; an expert is (f, h) and back.
"""

from vramtui.estimators.analytic.ops.decoder_builder import Writer
from vramtui.estimators.analytic.tape.tape import Operator, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded

ROUTING, EXPERTS = "activations: routing", "activations: experts"


def mixture(writer: Writer, x: Tensor) -> Tensor:
    """Each token's copies go through num_experts_per_tok experts, as one grouped product over all of them."""
    model, tape, ops, trained = writer.model, writer.tape, writer.ops, writer.setting.trained
    experts, d = model.num_experts or 1, model.hidden_size
    copies = x.numel // d * (model.num_experts_per_tok or 1)
    tape.group = ROUTING
    logits = ops.linear(x, d, experts, "router", trained=trained)
    chances = ops.pointwise(ops.cast(logits, 4, "router logits in fp32"), "router softmax", saves="output")
    weights = tape.new(copies, x.itemsize, "routing weights", tracked=chances.tracked)
    where = tape.new(copies, 8, "routing indices", tracked=False)
    tape.record(
        Operator([chances], [weights], saved_outputs=[where], flows=[(chances, True)], workspace=rounded(copies * 4))
    )
    tape.group = EXPERTS
    chosen = tape.new(copies * d, x.itemsize, "tokens for their experts", tracked=x.tracked)
    tape.record(Operator([x], [chosen], flows=[(x, True)]))
    y = _experts(writer, chosen, experts)
    y = ops.multiply(y, weights, "experts' answers, weighted")
    out = tape.new(x.numel, y.itemsize, "experts' sum", tracked=y.tracked)
    tape.record(Operator([y], [out], flows=[(y, True)]))
    tape.touch(weights, where)
    return _with_shared(writer, x, out) if model.shared_size else out


def _experts(writer: Writer, x: Tensor, experts: int) -> Tensor:
    model, ops, setting = writer.model, writer.ops, writer.setting
    d, f = model.hidden_size, model.expert_size
    wide = 2 * f if model.gated_mlp else f
    y = ops.linear(x, d, wide, "experts_gate_up_proj", trained=setting.trained, copies=experts, packed=setting.packed)
    if model.gated_mlp:
        gate, up = (writer.tape.view(y, y.numel // 2) for _ in range(2))
        writer.tape.record(Operator([y], [gate, up], flows=[(y, True)]))
        y = ops.multiply(writer.activation(gate), up, "gate x up of experts")
    else:
        y = writer.activation(y)
    return ops.linear(y, f, d, "experts_down_proj", trained=setting.trained, copies=experts, packed=setting.packed)


def _with_shared(writer: Writer, x: Tensor, routed: Tensor) -> Tensor:
    model, ops = writer.model, writer.ops
    d, f = model.hidden_size, model.shared_size
    gate = writer.activation(writer.linear(x, d, f, "shared_gate_proj")) if model.gated_mlp else None
    y = writer.linear(x, d, f, "shared_up_proj")
    y = ops.multiply(gate, y, "gate x up, shared") if gate is not None else writer.activation(y)
    y = writer.linear(y, f, d, "shared_down_proj")
    if model.shared_expert_gate:
        chance = ops.linear(x, d, 1, "shared_gate", trained=writer.setting.trained)
        y = ops.multiply(y, ops.pointwise(chance, "shared gate", saves="output"), "shared expert, gated")
    return ops.add(routed, y, "experts and shared expert")
