"""Attention on a tape: torch's fused kernels, or the matrix of scores spelt out.

Shapes: queries (b, n, s, d), keys (b, kv, t, d), values (b, kv, t, e), scores (b, n, s, t); b batch, n heads, kv
key/value heads, s tokens that ask, t tokens that are looked at, d and e widths of a head.
"""

from collections.abc import Iterator

import msgspec

from vramtui.core.base.late import late
from vramtui.estimators.analytic.ops.operators import Operators
from vramtui.estimators.analytic.tape.tape import Tape, Tensor, recompute_workspace, storage_of
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, rounded
from vramtui.estimators.torch_facts.sdpa_backend import AMPERE, SHARED_HEADS_SINCE

# What only a backward pass takes.
efficient_kernel = late("vramtui.estimators.torch_facts.sdpa_backend:EfficientKernel")
efficient_backward_bytes = late("vramtui.estimators.torch_facts.sdpa_backend:efficient_backward_bytes")
fused_backward_bytes = late("vramtui.estimators.torch_facts.sdpa_backend:fused_backward_bytes")

NAMES = "queries", "keys", "values"
SEEDS = "random seed", "random offset"


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one attention.

    Attributes:
        queries: positions that ask; `keys` positions that are looked at.
        head_dim: width of queries and keys; `value_dim` of values.
        masked: whether a kernel is handed a mask, as one of numbers, rather than a flag that later tokens do not count.
        capped: whether scores are squeezed by tanh before the mask (Gemma 2's `attn_logit_softcapping`).
    """

    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dropout: float = 0.0
    masked: bool = False
    capped: bool = False

    @classmethod
    def of(cls, batch: int, queries: int, keys: int, heads: int, head_dim: int, dropout: float = 0.0) -> "Heads":
        """Heads of one width, each with keys and values of its own."""
        return cls(
            batch=batch,
            queries=queries,
            keys=keys,
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            value_dim=head_dim,
            dropout=dropout,
        )

    @property
    def scores(self) -> int:
        return self.batch * self.heads * self.queries * self.keys

    @property
    def out(self) -> int:
        return self.batch * self.queries * self.heads * self.value_dim


# Queries, keys and values.
Projected = tuple[Tensor, Tensor, Tensor]


def fused_attention(ops: Operators, heads: Heads, qkv: Projected, *, efficient: bool = False) -> Tensor:
    """scaled_dot_product_attention's fused kernels: they save q, k, v, the answer and one number for each row.

    In fp32 it is always the memory-efficient one, which takes shared key/value heads from 2.14 on and has seeds of
    random numbers from then on where it needs none. In bf16 no card before Ampere has one: scores are spelled out.
    """
    if ops.recipe.bf16 and ops.card.capability < AMPERE:
        return math_attention(ops, heads, qkv, causal=False)
    q, k, v = _cast(ops, qkv)
    tape, efficient = ops.tape, efficient or q.itemsize == 4
    batch, mask = heads.batch, []
    if heads.masked:  # one of booleans as one of zeros and minus infinity, which each layer makes for itself
        numel = batch * heads.queries * heads.keys
        mask = [tape.new(numel, q.itemsize, "mask in numbers", tracked=False)]
        tape.record([], mask, workspace=rounded(numel))
    tracked = q.tracked or k.tracked or v.tracked
    workspace = 0  # what the kernel takes for itself on its way back, and the gradients of shared keys and values
    if tracked and efficient:
        kernel = efficient_kernel(q.itemsize == 2, ops.card.capability, bool(heads.dropout))
        widths = heads.head_dim, heads.value_dim
        workspace = efficient_backward_bytes(batch * heads.heads, heads.queries, heads.keys, widths, kernel)
    elif tracked:
        workspace = fused_backward_bytes(batch, heads.heads, heads.queries, heads.head_dim)
    if tracked and heads.kv_heads < heads.heads:
        numbers = batch * heads.keys * heads.heads * q.itemsize
        workspace += rounded(numbers * heads.head_dim) + rounded(numbers * heads.value_dim)
    seeded = not efficient or (ops.release >= SHARED_HEADS_SINCE and not heads.dropout)
    seeds = [tape.new(1, 8, name, tracked=False) for name in SEEDS] if seeded else []
    length = -(-heads.queries // 32) * 32 if efficient else heads.queries
    out = tape.new(heads.out, q.itemsize, "attention output", tracked=tracked)
    rows = tape.new(heads.batch * heads.heads * length, 4, "log-sum-exp of each row of scores", tracked=False)
    tape.record(
        [q, k, v, *mask],
        [out],
        saves=[q, k, v, out, *mask],
        saved_outputs=[rows, *seeds],
        flows=[(q, True), (k, True), (v, True)],
        backward_workspace=workspace,
        cached=True,
        kernel=True,
    )
    return out


def repeat_kv(ops: Operators, heads: Heads, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Heads]:
    """Keys and values repeated for each query head that shares them, as transformers does with a mask."""
    per_head = heads.batch * heads.keys * heads.heads
    k = _repeated(ops, k, per_head * heads.head_dim, "keys")
    v = _repeated(ops, v, per_head * heads.value_dim, "values")
    return k, v, msgspec.structs.replace(heads, kv_heads=heads.heads, masked=True)


def math_attention(ops: Operators, heads: Heads, qkv: Projected, *, causal: bool = True) -> Tensor:
    """scaled_dot_product_attention where no fused kernel takes the call: in fp32, with the scores and a `causal` mask.

    Shared key/value heads are repeated, queries and keys scaled before their product
    (ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math).
    """
    tape, per_head = ops.tape, heads.batch * heads.keys * heads.heads
    itemsize = qkv[0].itemsize if ops.autocast is None else ops.autocast
    q, k, v = wide = tuple(ops.cast(t, 4, f"{name} in fp32") for t, name in zip(qkv, NAMES, strict=True))
    scaled = ops.unsaved(q, "queries, scaled")
    mask = []
    if causal:
        pairs = heads.queries * heads.keys
        mask = [tape.new(pairs, 4, "mask", tracked=False)]
        tape.record([], mask, workspace=rounded(pairs), scratch_blocks=(rounded(pairs),))
    k = _repeated(ops, k, per_head * heads.head_dim, "keys")
    v = _repeated(ops, v, per_head * heads.value_dim, "values")
    queries = _contiguous(tape, scaled, scaled.numel, "queries, contiguous")
    scores = _product(tape, queries, ops.unsaved(k, "keys, scaled"), heads.scores, "scores")
    weights = ops.pointwise(scores, "softmax", saves="output", backward_workspace=rounded(heads.scores * 4))
    # _safe_softmax: which scores are masked, which rows are throughout, and a zero for these.
    tape.nodes[-1].scratch_blocks = (rounded(heads.scores), rounded(heads.scores // heads.keys), MIN_BLOCK)
    weights = ops.dropout(weights, heads.dropout, "attention dropout")
    second = ops.cast(weights, itemsize, "softmax, cast")
    answer = _product(tape, weights, v, heads.out, "attention output, by head")
    out = ops.cast(answer, itemsize, "attention output, by head")
    tape.touch(answer)
    tape.touch(weights, k, v, scaled, *mask, *wide, second)
    done = _contiguous(tape, out, heads.out, "attention output")
    tape.touch(out)
    return done


def _repeated(ops: Operators, x: Tensor, numel: int, label: str) -> Tensor:
    """Heads of keys or values, once for each query head that shares them; as they are if none does."""
    return x if x.numel == numel else ops.unsaved(x, f"{label}, repeated", numel)


def _cast(ops: Operators, qkv: Projected) -> Iterator[Tensor]:
    return (ops.autocast_input(tensor, f"{name}, cast") for tensor, name in zip(qkv, NAMES, strict=True))


def eager_attention(ops: Operators, heads: Heads, qkv: Projected, *, plain: bool, masked: bool = True) -> Tensor:
    """Eager attention: softmax(q kᵀ / √d + mask) v, each operator by itself, heads copied to stand together."""
    tape = ops.tape
    q, k, v = _cast(ops, qkv)
    wide = heads.batch * heads.keys * heads.heads
    q = _standing(tape, heads, q, q.numel, "queries, contiguous")
    k = _standing(tape, heads, k, wide * heads.head_dim, "keys, contiguous")
    scores = _product(tape, q, k, heads.scores, "scores")
    scores = ops.unsaved(scores, "scores, scaled")
    if heads.capped:
        scores = ops.unsaved(scores, "scores over the cap")
        scores = ops.pointwise(scores, "scores, squeezed", saves="output")
        scores = ops.unsaved(scores, "scores, capped")
    if masked:
        out = tape.new(scores.numel, scores.itemsize, "scores, masked", tracked=scores.tracked)
        mask = [tape.new(heads.queries * heads.keys, 1, "mask", tracked=False)] if plain else []
        tape.record([scores], [out], saved_outputs=mask, flows=[(scores, plain)])
        scores = out
    # In fp32 under autocast and in transformers; its backward multiplies gradient and output first.
    itemsize = 4 if ops.autocast is not None or not plain else scores.itemsize
    wide_scores = ops.cast(scores, itemsize, "scores in fp32")
    full = rounded(scores.numel * itemsize)
    weights = ops.pointwise(wide_scores, "softmax", saves="output", backward_workspace=full)
    weights = ops.dropout(weights, heads.dropout, "attention dropout")
    weights = ops.autocast_input(weights, "softmax, cast")
    if not plain:
        weights = ops.cast(weights, v.itemsize, "softmax, cast")
        tape.touch(scores)
    v = _standing(tape, heads, v, wide * heads.value_dim, "values, contiguous")
    answer = _product(tape, weights, v, heads.out, "attention output, by head")
    out = answer if heads.heads == 1 else _contiguous(tape, answer, heads.out, "attention output")
    tape.touch(answer, *qkv)
    if plain:
        tape.touch(scores)
    return out


def recomputed_attention(ops: Operators, heads: Heads, qkv: Projected, *, plain: bool) -> Tensor:
    """Eager attention that keeps only q, k and v; the scores are made again in the backward pass.

    Selective recomputation of Korthikanti et al. 2022 (arXiv 2205.05198).
    """
    inner = Tape(ops.tape.group)
    alone = ops.for_tape(inner)
    q, k, v = (Tensor(t.storage, t.numel, t.itemsize, tracked=t.tracked) for t in qkv)
    for t in (q, k, v):
        t.storage = storage_of(t.numel, t.itemsize, ops.tape.group, "input")
        t.storage.borrowed = True
    out = eager_attention(alone, heads, (q, k, v), plain=plain)
    inner.close(out)
    forward_workspace, back = recompute_workspace(inner, input_grad_bytes=sum(t.storage.size for t in qkv))
    answer = ops.tape.new(out.numel, out.itemsize, "attention output", tracked=out.tracked)
    ops.tape.record(
        qkv,
        [answer],
        saves=qkv,
        flows=[(tensor, True) for tensor in qkv],
        workspace=forward_workspace - answer.storage.size,
        backward_workspace=max(back, 0),
        gemm=True,
    )
    return answer


def _standing(tape: Tape, heads: Heads, x: Tensor, numel: int, label: str) -> Tensor:
    """`x` in one piece, unless there is one sequence or one head (`matmul`, ATen/native/LinearAlgebra.cpp, 2.13).

    Batch and heads are one dimension of a batched product, and only where both are more than one do they lie apart.
    """
    return x if numel == x.numel and 1 in {heads.batch, heads.heads} else _contiguous(tape, x, numel, label)


def _contiguous(tape: Tape, x: Tensor, numel: int, label: str) -> Tensor:
    """A copy in which each head stands together, or repeated for the queries that share it."""
    out = tape.new(numel, x.itemsize, label, tracked=x.tracked)
    tape.record([x], [out], flows=[(x, numel != x.numel)])
    return out


def _product(tape: Tape, a: Tensor, b: Tensor, numel: int, label: str) -> Tensor:
    out = tape.new(numel, a.itemsize, label, tracked=a.tracked or b.tracked)
    saves = [other for t, other in ((a, b), (b, a)) if t.tracked]
    tape.record([a, b], [out], saves=saves, flows=[(a, True), (b, True)], gemm=True)
    return out
