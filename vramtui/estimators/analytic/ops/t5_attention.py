"""T5's attention: relative positions are a learned bias on the scores, which only some of torch's kernels take.

A bias that is trained goes to the memory-efficient kernel, with or without dropout, for cuDNN's gives a mask no
gradient and flash takes none; one that is not goes to cuDNN's where that comes first
(ATen/native/transformers/cuda/sdp_utils.cpp).

Shapes: queries (b, n, s, d), keys and values (b, n, t, d), bias (n, s, t); b batch, n heads, s and t tokens, d width
of a head.
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
    cross: bool = False,
) -> Tensor:
    """Attention with a bias of (heads, queries, keys), made in the `first` block and shared by the others.

    Over the encoder (`cross`) the bias is zeros that nobody trains.
    """
    if first and not cross:
        _table(part, heads)
    return fused_attention(part.ops, heads, q, k, v) if cross else _biased(part, heads, q, k, v)


def _table(part: ModuleBuilder, heads: Heads) -> None:
    """Buckets of all pairs of positions, kept for the table's gradient, and the bias that is looked up by them."""
    cells = heads.queries * heads.keys
    table = rounded(part.net.trained[-1].numel * part.ops.parameter) if part.net.training else 0
    bias = part.ops.tape.new(cells * heads.heads, part.ops.parameter, "relative positions' bias", tracked=False)
    buckets = part.ops.tape.new(cells, 8, "buckets of relative positions", tracked=False)
    part.ops.tape.op([], [bias], beside=[buckets], grad_bytes=table)
    part.ops.tape.hold(bias)
    if not part.net.training:
        part.ops.tape.touch(buckets)


def _biased(part: ModuleBuilder, heads: Heads, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A fused kernel that reads the bias, laid out anew for each block, and hands back its gradient batch by batch."""
    trained = part.net.training
    cells = heads.heads * heads.queries * heads.keys
    bias = part.ops.tape.new(cells, q.itemsize, "bias, contiguous", tracked=False)
    part.ops.tape.op([], [bias])
    out = fused_attention(part.ops, heads, q, k, v, efficient=trained)
    kernel = part.ops.tape.nodes[-1]
    if trained:
        kernel.saves = (*kernel.saves, bias.storage)
        kernel.backward_workspace += rounded(heads.scores * q.itemsize) + rounded(cells * q.itemsize)
    part.ops.tape.touch(bias)
    return out
