"""T5's attention: relative positions are a learned bias on the scores, which only some of torch's kernels take.

With dropout and a bias that is trained, scaled_dot_product_attention falls back to plain operators
(ATen/native/transformers/cuda/sdp_utils.cpp), in fp32 whatever comes in; else its memory-efficient kernel does it.
"""

from vramtui.estimators.analytic.ops.attention import Heads, fused_attention
from vramtui.estimators.analytic.ops.module_builder import ModuleBuilder
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded


def biased_attention(
    part: ModuleBuilder,
    heads: Heads,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    first: bool,
    causal: bool,
    cross: bool = False,
) -> Tensor:
    """Attention with a bias of (heads, queries, keys), made in the `first` block and shared by the others.

    Over the encoder (`cross`) the bias is zeros that nobody trains.
    """
    cells = heads.queries * heads.keys
    if first and not cross:
        _table(part, heads)
    if cross or not part.net.training:
        return fused_attention(part, heads, q, k, v) if cross else _biased(part, heads, q, k, v, trained=False)
    if heads.dropout == 0:
        return _biased(part, heads, q, k, v, trained=True)
    back = rounded(cells * heads.heads * part.parameter) * 2
    return _spelled(part, heads, q, k, v, seen=cells if causal else 0, back_scratch=back)


def _table(part: ModuleBuilder, heads: Heads) -> None:
    """Buckets of all pairs of positions, kept for the table's gradient, and the bias that is looked up by them."""
    cells = heads.queries * heads.keys
    table = rounded(part.net.trained[-1].numel * part.parameter) if part.net.training else 0
    bias = part.tape.new(cells * heads.heads, part.parameter, "relative positions' bias", tracked=False)
    buckets = part.tape.new(cells, 8, "buckets of relative positions", tracked=False)
    part.tape.op([], [bias], beside=[buckets], into=table)
    part.tape.hold(bias)
    if not part.net.training:
        part.tape.touch(buckets)


def _biased(part: ModuleBuilder, heads: Heads, q: Tensor, k: Tensor, v: Tensor, *, trained: bool) -> Tensor:
    """A fused kernel that reads the bias, laid out anew for each block, and hands back its gradient batch by batch."""
    cells = heads.heads * heads.queries * heads.keys
    bias = part.tape.new(cells, q.width, "bias, contiguous", tracked=False)
    part.tape.op([], [bias])
    out = fused_attention(part, heads, q, k, v)
    kernel = part.tape.nodes[-1]
    if trained:
        kernel.saves = (*kernel.saves, bias.storage)
        kernel.back_scratch += rounded(heads.scores * q.width) + rounded(cells * q.width)
    part.tape.touch(bias)
    return out


def _spelled(
    part: ModuleBuilder, heads: Heads, q: Tensor, k: Tensor, v: Tensor, *, seen: int, back_scratch: int
) -> Tensor:
    """softmax(q kᵀ + bias) v as scaled_dot_product_attention spells it out: in fp32, the bias added in place."""
    tape, given = part.tape, q.width
    lowered = (part.lowered(t, f"{name}, cast") for t, name in ((q, "queries"), (k, "keys"), (v, "values")))
    q, k, v = (
        part.cast(t, 4, f"{name} in fp32") for t, name in zip(lowered, ("queries", "keys", "values"), strict=True)
    )
    given = part.autocast or given
    q, k = (part.pointwise(t, f"{name}, scaled", saves="nothing") for t, name in ((q, "queries"), (k, "keys")))
    q, k = (part.pointwise(t, f"{name}, by head", saves="nothing") for t, name in ((q, "queries"), (k, "keys")))
    scores = _product(part, q, k, heads.scores, "scores")
    with_bias = tape.view(scores)
    hidden = [tape.new(seen, 1, "which pairs are hidden", tracked=False)] if seen else []
    tape.op([scores], [with_bias], beside=hidden, flows=[(scores, False)], back_scratch=back_scratch)
    full = rounded(scores.numel * 4)
    weights = part.pointwise(with_bias, "softmax", saves="output", scratch=full + full // 4, back_scratch=full)
    weights = part.dropout(weights, heads.dropout, "attention dropout")
    v = part.pointwise(v, "values, by head", saves="nothing")
    out = part.cast(_product(part, weights, v, heads.out, "attention output, by head"), given, "attention output, cast")
    return part.pointwise(out, "attention output", saves="nothing")


def _product(part: ModuleBuilder, a: Tensor, b: Tensor, numel: int, label: str) -> Tensor:
    out = part.tape.new(numel, a.width, label, tracked=True)
    part.tape.op([a, b], [out], saves=[a, b], flows=[(a, True), (b, True)], gemm=True)
    return out
