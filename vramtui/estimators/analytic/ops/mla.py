"""Multi-head latent attention on a tape (DeepSeek-V2, arXiv 2405.04434; as transformers writes it).

Shapes: x (b, s, h), compressed keys and values (b, s, r), queries and keys (b, n, s, d) of which the rotary part is
shared by all heads, values (b, n, s, e); r is kv_lora_rank.
"""

from vramtui.estimators.analytic.ops.attention import Heads
from vramtui.estimators.analytic.ops.decoder_builder import ATTENTION, Writer
from vramtui.estimators.analytic.ops.self_attention import attend, cached, rotated
from vramtui.estimators.analytic.tape.tape import Operator, Tensor
from vramtui.models.kinds.mla import MlaModule
from vramtui.models.specs.decoder import attention_of


def latent_attention(writer: Writer, x: Tensor) -> Tensor:
    """Queries, keys and values through low ranks; the cache keeps the latent and the keys' shared rotary part."""
    model, setting, tape = writer.model, writer.setting, writer.tape
    module = attention_of(model)
    assert isinstance(module, MlaModule)
    plain, rope_dim, values = module.plain_dim, module.rotary_dim, module.value_dim
    d, heads, tokens = model.hidden_size, model.num_attention_heads, setting.tokens
    wide, rank = plain + rope_dim, model.kv_lora_rank or 0
    bias = model.attention_bias
    tape.group = ATTENTION
    q = x
    if model.q_lora_rank:
        q = writer.linear(x, d, model.q_lora_rank, "q_a_proj", bias=bias)
        q = writer.norm(q, "query norm", model.q_lora_rank)
        tape.group = ATTENTION
        q = writer.linear(q, model.q_lora_rank, heads * wide, "q_b_proj")
    else:
        q = writer.linear(x, d, heads * wide, "q_proj", bias=bias)
    low = writer.linear(x, d, rank + rope_dim, "kv_a_proj_with_mqa", bias=bias)
    compressed, part = (tape.view(low, tokens * size) for size in (rank, rope_dim))
    tape.record(Operator([low], [compressed, part], flows=[(low, True)]))
    normed = writer.norm(compressed, "latent norm", rank)
    tape.group = ATTENTION
    q_part = tape.view(q, tokens * heads * rope_dim)
    tape.record(Operator([q], [q_part], flows=[(q, True)]))
    q_part, part = rotated(writer, q_part, "queries, rotated"), rotated(writer, part, "keys, rotated")
    before = (normed, part)
    if setting.cache is not None:
        normed, part = cached(writer, normed, setting.cache), cached(writer, part, setting.cache)
    full_q = _joined(writer, (q, q_part), tokens * heads * wide, "queries")
    looked_at = setting.cache.keys(setting.sequence) if setting.cache else setting.sequence
    seen = setting.batch * looked_at
    both = writer.linear(normed, rank, heads * (plain + values), "kv_b_proj")
    keys, v = (tape.view(both, seen * heads * size) for size in (plain, values))
    tape.record(Operator([both], [keys, v], flows=[(both, True)]))
    full_k = _joined(writer, (keys, part), seen * heads * wide, "keys")
    sizes = Heads(
        batch=setting.batch,
        queries=setting.sequence,
        keys=looked_at,
        heads=heads,
        kv_heads=heads,
        head_dim=wide,
        value_dim=values,
        dropout=model.attention_dropout if setting.training else 0.0,
    )
    out = attend(writer, sizes, full_q, full_k, v)
    answer = writer.linear(out, heads * values, d, "o_proj", bias=model.output_bias)
    tape.touch(*before, full_q, full_k, v)
    return answer


def _joined(writer: Writer, pieces: tuple[Tensor, Tensor], numel: int, label: str) -> Tensor:
    """Both parts of every head side by side, in a new tensor."""
    itemsize = max(piece.itemsize for piece in pieces)
    out = writer.tape.new(numel, itemsize, label, tracked=any(piece.tracked for piece in pieces))
    writer.tape.record(Operator(pieces, [out], flows=[(piece, True) for piece in pieces]))
    return out
