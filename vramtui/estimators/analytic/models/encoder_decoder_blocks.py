"""The parts of an encoder-decoder's blocks on a tape: attention to itself or to the encoder, MLPs, norms.

T5's relative positions are a learned bias on the scores, which only some of torch's kernels take: one that is trained
goes to the memory-efficient kernel, with or without dropout, for cuDNN's gives a mask no gradient and flash takes
none; one that is not goes to cuDNN's where that comes first (ATen/native/transformers/cuda/sdp_utils.cpp).

Shapes: x (b, t, d), what the encoder answered (b, s, d), queries (b, n, t, e), keys and values (b, n, s, e) across or
(b, n, t, e) to itself, MLP (b, t, f), T5's positions (1, n, t, t); b batch, t and s tokens, n heads of width e,
f that of the MLP.
"""

from collections.abc import Callable

import msgspec

from vramtui.core.schema.encoder_models import EncoderDecoderModel
from vramtui.estimators.analytic.ops.attention_kernels import Heads, Projected, eager_attention, fused_attention
from vramtui.estimators.analytic.ops.decoder_builder import Cache
from vramtui.estimators.analytic.ops.module_builder import ModuleBuilder, Net
from vramtui.estimators.analytic.tape.replay import ATTENTION, GROWTH, KV_CACHE, MLP, NORMS, STREAM
from vramtui.estimators.analytic.tape.tape import Tensor, storage_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds import AttentionModule, LinearModule, NormModule, linear_parts
from vramtui.models.spec import RepeatedBlock
from vramtui.models.specs.encoder_decoder import CROSS as CROSS_PREFIX
from vramtui.models.specs.encoder_decoder import relative_positions

CROSS = "activations: cross-attention"


def biased_attention(part: ModuleBuilder, heads: Heads, qkv: Projected, *, first: bool, cross: bool = False) -> Tensor:
    """Attention with a bias of (heads, queries, keys), made in the `first` block and shared by the others.

    Over the encoder (`cross`) the bias is zeros that nobody trains.
    """
    if first and not cross:
        _table(part, heads)
    return fused_attention(part.ops, heads, qkv) if cross else _biased(part, heads, qkv)


def _table(part: ModuleBuilder, heads: Heads) -> None:
    """Buckets of all pairs of positions, kept for the table's gradient, and the bias that is looked up by them."""
    cells = heads.queries * heads.keys
    table = rounded(part.net.trained[-1].numel * part.ops.parameter) if part.net.training else 0
    bias = part.ops.tape.new(cells * heads.heads, part.ops.parameter, "relative positions' bias", tracked=False)
    buckets = part.ops.tape.new(cells, 8, "buckets of relative positions", tracked=False)
    part.ops.tape.record([], [bias], saved_outputs=[buckets], grad_bytes=table)
    part.ops.tape.hold(bias)
    if not part.net.training:
        part.ops.tape.touch(buckets)


def _biased(part: ModuleBuilder, heads: Heads, qkv: Projected) -> Tensor:
    """A fused kernel that reads the bias, laid out anew for each block, and hands back its gradient batch by batch."""
    trained, itemsize = part.net.training, qkv[0].itemsize
    cells = heads.heads * heads.queries * heads.keys
    bias = part.ops.tape.new(cells, itemsize, "bias, contiguous", tracked=False)
    part.ops.tape.record([], [bias])
    out = fused_attention(part.ops, heads, qkv, efficient=trained)
    kernel = part.ops.tape.nodes[-1]
    if trained:
        kernel.saves = (*kernel.saves, bias.storage)
        kernel.backward_workspace += rounded(heads.scores * itemsize) + rounded(cells * itemsize)
    part.ops.tape.touch(bias)
    return out


class BlockSide(msgspec.Struct, frozen=True, kw_only=True):
    """One pass through the encoder's blocks or the decoder's.

    Attributes:
        tokens: positions in this pass; `source` those of the encoder, where the decoder looks at them.
        cache: what stands in the decoder's cache already; None where nothing is kept.
    """

    tokens: int
    source: int | None = None
    cache: Cache | None = None

    @property
    def keys(self) -> int:
        """Positions that the attention to itself looks at."""
        return self.tokens + (self.cache.past if self.cache else 0)


class Blocks:
    """Writes blocks of one side."""

    def __init__(self, model: EncoderDecoderModel, net: Net, side: BlockSide, block: RepeatedBlock) -> None:
        self.model, self.net, self.side, self.of_block = model, net, side, block
        self.attention = block.module("", AttentionModule)
        self.wide = self.attention.heads * self.attention.head_dim
        attentions = [module for module in block.modules if isinstance(module, AttentionModule)]
        self.projections = {name: part for one in attentions for name, part in linear_parts(one).items()}

    def drop(self, part: ModuleBuilder, x: Tensor, label: str) -> Tensor:
        """Dropout, in training."""
        return part.ops.dropout(x, self.model.dropout if self.net.training else 0.0, label)

    def norm(self, part: ModuleBuilder, x: Tensor, norm: NormModule) -> Tensor:
        """A norm, whose tensors are a group of their own."""
        part.ops.tape.group = NORMS
        return part.normed_by(x, norm)

    def block(self, part: ModuleBuilder, x: Tensor, encoded: Tensor | None, *, bucketed: bool = False) -> Tensor:
        """Attention to itself, to the encoder where there is one, and the MLP, each with norm and residual.

        The relative positions of all blocks are held in the `bucketed` one, T5's first.
        """
        x = self._around(part, x, "self_attention", lambda y: self._itself(part, y, bucketed=bucketed))
        if encoded is not None:
            x = self._around(part, x, "cross_attention", lambda y: self._cross(part, y, encoded))
        return self._around(part, x, "mlp", lambda y: self._mlp(part, y))

    def _around(self, part: ModuleBuilder, x: Tensor, name: str, write: Callable[[Tensor], Tensor]) -> Tensor:
        """T5 and Whisper norm first, BART after the sum."""
        first, norm = self.model.final_norm, self.of_block.module(f"{name}_norm", NormModule)
        normed = self.norm(part, x, norm) if first else x
        y = self.drop(part, write(normed), f"{name} dropout")
        part.ops.tape.touch(normed)
        part.ops.tape.group = STREAM
        x = part.ops.add(x, y, "residual stream")
        return x if first else self.norm(part, x, norm)

    def _mlp(self, part: ModuleBuilder, x: Tensor) -> Tensor:
        model, part.ops.tape.group = self.model, MLP
        block = self.of_block
        y = part.activation(part.apply(x, block.module("fc1", LinearModule)), model.hidden_act)
        if model.gated_mlp:
            y = part.ops.multiply(y, part.apply(x, block.module("gate", LinearModule)), "gate x up")
        y = self.drop(part, y, "MLP's inner dropout")
        if model.relative_attention_num_buckets:  # T5 raises what autocast lowered to the type of the weights
            y = part.ops.cast(y, part.ops.parameter, "fc2 input in the weights' type")
        out = part.apply(y, block.module("fc2", LinearModule))
        part.ops.tape.touch(y)
        return out

    def _itself(self, part: ModuleBuilder, x: Tensor, *, bucketed: bool) -> Tensor:
        part.ops.tape.group = ATTENTION
        q, k, v = self._query(part, x, ""), self._cached(part, x, "k_proj"), self._cached(part, x, "v_proj")
        if bucketed:
            part.add_parameters(relative_positions(self.model))
        heads = self._heads(self.side.keys)
        if self.model.relative_attention_num_buckets and not self.net.eager:
            out = biased_attention(part, heads, (q, k, v), first=bucketed)
        else:
            out = self._attend(part, heads, (q, k, v), masked=self.side.source is not None)
        return self._out(part, out, (q, k, v), "")

    def _cross(self, part: ModuleBuilder, x: Tensor, encoded: Tensor) -> Tensor:
        part.ops.tape.group = CROSS
        source, cache = self.side.source or 0, self.side.cache
        q = self._query(part, x, CROSS_PREFIX)
        if cache is not None and cache.past:
            for name in ("k_proj", "v_proj"):
                part.add_parameters(self.projections[CROSS_PREFIX + name])
            storage = storage_of(
                self.net.batch * source * self.wide, cache.itemsize, CROSS, "keys and values of the source"
            )
            storage.borrowed = True
            k = v = Tensor(storage, storage.numel, storage.itemsize, tracked=False)
        else:
            k, v = (self._cached(part, encoded, name, CROSS_PREFIX) for name in ("k_proj", "v_proj"))
        heads = self._heads(source)
        if self.model.relative_attention_num_buckets and not self.net.eager:
            out = biased_attention(part, heads, (q, k, v), first=False, cross=True)
        else:
            out = self._attend(part, heads, (q, k, v), masked=False)
        return self._out(part, out, (q, k, v), CROSS_PREFIX)

    def _query(self, part: ModuleBuilder, x: Tensor, prefix: str) -> Tensor:
        """Whisper scales queries and lays queries, keys and values out head by head."""
        q = part.apply(x, self.projections[f"{prefix}q_proj"])
        if self.model.num_mel_bins is not None:
            q = part.ops.pointwise(q, "queries, scaled", saves="nothing")
            q = part.ops.pointwise(q, "queries, by head", saves="nothing")
        return q

    def _cached(self, part: ModuleBuilder, x: Tensor, name: str, prefix: str = "") -> Tensor:
        """Keys or values, put into the cache where there is one."""
        y = part.apply(x, self.projections[prefix + name])
        if self.model.num_mel_bins is not None:
            y = part.ops.pointwise(y, f"{name}, by head", saves="nothing")
        cache = self.side.cache
        if cache is None:
            return y
        past = 0 if prefix else cache.past
        numel = y.numel + self.net.batch * past * self.wide
        out = part.ops.tape.new(
            numel, cache.itemsize, "keys or values", tracked=False, group=GROWTH if past else KV_CACHE
        )
        part.ops.tape.record([y], [out])
        if not past:
            part.ops.tape.hold(out)
        return part.ops.cast(out, y.itemsize, "cache in the compute type")

    def _heads(self, keys: int) -> Heads:
        return Heads(
            batch=self.net.batch,
            queries=self.side.tokens,
            keys=keys,
            heads=self.attention.heads,
            kv_heads=self.attention.kv_heads,
            head_dim=self.attention.head_dim,
            value_dim=self.attention.value_dim,
            dropout=self.model.dropout if self.net.training else 0.0,
        )

    def _attend(self, part: ModuleBuilder, heads: Heads, qkv: Projected, *, masked: bool) -> Tensor:
        if self.net.eager:
            return eager_attention(part.ops, heads, qkv, plain=True, masked=masked)
        out = fused_attention(part.ops, heads, qkv)
        laid_out_as_queries = self.net.recipe.compute == 2  # flash's and cuDNN's kernels do so, the one for fp32 not
        if self.model.num_mel_bins is not None and laid_out_as_queries and heads.queries > 1:
            out = part.ops.pointwise(out, "attention output, in rows", saves="nothing")
        return out

    def _out(self, part: ModuleBuilder, out: Tensor, alive: tuple[Tensor, ...], prefix: str) -> Tensor:
        y = part.apply(out, self.projections[f"{prefix}o_proj"])
        part.ops.tape.touch(*alive)
        return y
