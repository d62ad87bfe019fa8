"""Multi-head latent attention on a tape (DeepSeek-V2, arXiv 2405.04434; as transformers writes it).

Shapes: x (b, s, h), compressed keys and values (b, s, r), queries and keys (b, n, s, d) whose rotary part is
shared by all heads, values (b, n, s, e); r is kv_lora_rank.
"""

from typing import TYPE_CHECKING

from vramtui.estimators.analytic.ops.attention import attend, cached, rotated
from vramtui.estimators.analytic.ops.decoder_builder import Writer
from vramtui.estimators.analytic.tape.replay import ATTENTION
from vramtui.estimators.analytic.tape.tape import Tensor
from vramtui.models.kinds import linear_parts

if TYPE_CHECKING:
    from vramtui.models.kinds import MlaModule


def record_mla(writer: Writer, module: "MlaModule", x: Tensor) -> Tensor:
    """Queries, keys and values through low ranks; the cache keeps the latent and the keys' shared rotary part."""
    setting, tape, layers = writer.setting, writer.tape, linear_parts(module)
    plain, rope_dim, values = module.plain_dim, module.rotary_dim, module.value_dim
    heads, tokens, rank, wide = module.heads, setting.tokens, module.kv_rank, module.key_dim

    def joined(halves: tuple[Tensor, Tensor], numel: int, label: str) -> Tensor:
        """Both parts of every head side by side, in a new tensor."""
        tracked = any(piece.tracked for piece in halves)
        out = tape.new(numel, max(piece.itemsize for piece in halves), label, tracked=tracked)
        tape.record(halves, [out], flows=[(piece, True) for piece in halves])
        return out

    tape.group = ATTENTION
    if module.q_rank:
        q = writer.norm(writer.linear(x, layers["q_a_proj"]), "query norm", module.q_rank)
        tape.group = ATTENTION
        q = writer.linear(q, layers["q_b_proj"])
    else:
        q = writer.linear(x, layers["q_proj"])
    low = writer.linear(x, layers["kv_a_proj_with_mqa"])
    compressed, part = writer.ops.split(low, tokens * rank, tokens * rope_dim)
    normed = writer.norm(compressed, "latent norm", rank)
    tape.group = ATTENTION
    (q_part,) = writer.ops.split(q, tokens * heads * rope_dim)
    q_part, part = rotated(writer, q_part, "queries, rotated"), rotated(writer, part, "keys, rotated")
    before = (normed, part)
    if setting.cache is not None:
        normed, part = cached(writer, normed, setting.cache), cached(writer, part, setting.cache)
    full_q = joined((q, q_part), tokens * heads * wide, "queries")
    sizes = writer.heads(module)
    seen = setting.batch * sizes.keys
    both = writer.linear(normed, layers["kv_b_proj"])
    keys, v = writer.ops.split(both, seen * heads * plain, seen * heads * values)
    full_k = joined((keys, part), seen * heads * wide, "keys")
    out = attend(writer, sizes, (full_q, full_k, v))
    answer = writer.linear(out, layers["o_proj"])
    tape.touch(*before, full_q, full_k, v)
    return answer
