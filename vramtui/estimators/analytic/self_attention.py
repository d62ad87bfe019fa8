"""A decoder's self-attention on a tape: projections, positions, cache, scores, output projection."""

from vramtui.estimators.analytic.attending import Heads, fused_attention, recomputed_attention, spelled_attention
from vramtui.estimators.analytic.blocks import rounded
from vramtui.estimators.analytic.tape import Tensor
from vramtui.estimators.analytic.writer import ATTENTION, GROWTH, KV_CACHE, Cache, Writer


def self_attention(writer: Writer, x: Tensor) -> Tensor:
    """Multi-head attention with as many key/value heads as the model has (MHA, GQA, MQA)."""
    model, setting, tape = writer.model, writer.setting, writer.tape
    queries, keys = model.num_attention_heads * model.head_size, model.kv_heads * model.head_size
    tape.group = ATTENTION
    q, k, v = _projections(writer, x, queries, keys)
    if model.qk_norm:
        q, k = (writer.norm(t, f"{name} norm", model.head_size) for t, name in ((q, "query"), (k, "key")))
        tape.group = ATTENTION
    if model.position == "rope":
        q, k = rotated(writer, q, "queries, rotated"), rotated(writer, k, "keys, rotated")
    before = (q, k, v)
    if setting.cache is not None:
        k, v = cached(writer, k, setting.cache), cached(writer, v, setting.cache)
    heads = Heads(
        batch=setting.batch,
        queries=setting.sequence,
        keys=setting.sequence + (setting.cache.past if setting.cache else 0),
        heads=model.num_attention_heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_size,
        value_dim=model.head_size,
        dropout=model.attention_dropout if setting.training else 0.0,
    )
    out = attend(writer, heads, q, k, v)
    answer = writer.linear(out, queries, model.hidden_size, "o_proj", bias=model.output_bias)
    tape.touch(*before, q, k, v)
    return answer


def attend(writer: Writer, heads: Heads, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores and what they pick, in the way the job asks for."""
    if not writer.setting.eager:
        return fused_attention(writer.ops, heads, q, k, v)
    if writer.setting.selective:
        return recomputed_attention(writer.ops, heads, q, k, v, plain=writer.plain)
    return spelled_attention(writer.ops, heads, q, k, v, plain=writer.plain)


def _projections(writer: Writer, x: Tensor, queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    model, tokens = writer.model, writer.setting.tokens
    d, bias = model.hidden_size, model.attention_bias
    if not model.fused_qkv:
        return (
            writer.linear(x, d, queries, "q_proj", bias=bias),
            writer.linear(x, d, keys, "k_proj", bias=bias),
            writer.linear(x, d, keys, "v_proj", bias=bias),
        )
    joined = writer.linear(x, d, queries + 2 * keys, "qkv_proj", bias=bias)
    q, k, v = (writer.tape.view(joined, tokens * size) for size in (queries, keys, keys))
    writer.tape.op([joined], [q, k, v], flows=[(joined, True)])
    return q, k, v


def rotated(writer: Writer, x: Tensor, label: str) -> Tensor:
    """Rotary positions in the residual stream's type: two products and a rotated copy on the way."""
    width = max(x.width, writer.setting.recipe.stream)
    full = rounded(x.numel * width)
    return writer.ops.pointwise(x, label, saves="nothing", width=width, scratch=2 * full, back_scratch=2 * full)


def cached(writer: Writer, x: Tensor, cache: Cache) -> Tensor:
    """torch.cat of what is in the cache and what is new; the old one goes when the new one stands.

    At first the new one is the cache; later it stands beside the old one for a moment.
    """
    tape, sequence = writer.tape, writer.setting.sequence
    numel = x.numel + x.numel // sequence * cache.past
    out = tape.new(numel, cache.width, "keys or values", tracked=False, group=GROWTH if cache.past else KV_CACHE)
    tape.op([x], [out])
    if not cache.past:
        tape.hold(out)
    return writer.ops.cast(out, x.width, "cache in the compute type")
