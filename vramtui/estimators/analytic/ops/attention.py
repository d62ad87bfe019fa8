"""A decoder's self-attention on a tape: projections, positions, cache, scores, output projection; and multi-head latent
attention (DeepSeek-V2, arXiv 2405.04434; as transformers writes it).

Shapes: x (b, s, h), queries (b, n, s, d), keys and values (b, kv, t, d) with a cache of t - s tokens before; of latent
attention compressed keys and values (b, s, r), and values (b, n, s, e); b batch, s tokens, h hidden, n heads, kv
key/value heads, d width of a head, r kv_lora_rank.
"""

from typing import TYPE_CHECKING

from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Attention, InferRun, Precision, TrainRun
from vramtui.estimators.analytic.ops import attention_kernels as kernels
from vramtui.estimators.analytic.ops.decoder_builder import Cache, Kernel, Writer
from vramtui.estimators.analytic.sizes.runtime import torch_of
from vramtui.estimators.analytic.tape.tape import ATTENTION, GROWTH, KV_CACHE, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.sdpa_backend import AttentionCall, can_use, choose_backend
from vramtui.models.spec import AttentionModule, linear_parts
from vramtui.models.specs.decoder import attention_of

if TYPE_CHECKING:
    from vramtui.models.spec import MlaModule


def record_attention(writer: Writer, module: AttentionModule, x: Tensor) -> Tensor:
    """Multi-head attention with as many key/value heads as the model has (MHA, GQA, MQA)."""
    model, setting, tape = writer.model, writer.setting, writer.tape
    tape.group = ATTENTION
    layers = linear_parts(module)
    if module.fused:
        joined = writer.linear(x, layers["qkv_proj"])
        each = (module.heads, module.kv_heads, module.kv_heads)
        q, k, v = writer.ops.split(joined, *(setting.tokens * heads * module.head_dim for heads in each))
    else:
        q, k, v = (writer.linear(x, layers[name]) for name in ("q_proj", "k_proj", "v_proj"))
    if module.qk_norm:
        q, k = (writer.norm(t, f"{name} norm", module.head_dim) for t, name in ((q, "query"), (k, "key")))
        tape.group = ATTENTION
    if model.position == "rope":
        q, k = rotated(writer, q, "queries, rotated"), rotated(writer, k, "keys, rotated")
    if setting.cache is not None:
        k, v = cached(writer, k, setting.cache), cached(writer, v, setting.cache)
    out = attend(writer, writer.heads(module, capped=model.attn_logit_softcapping is not None), (q, k, v))
    answer = writer.linear(out, layers["o_proj"])
    tape.touch(q, k, v)
    return answer


def attend(writer: Writer, heads: kernels.Heads, qkv: kernels.Projected) -> Tensor:
    """Scores and what they pick, in the way the job asks for."""
    setting, (q, k, v) = writer.setting, qkv
    if not setting.eager:
        if setting.masked:
            k, v, heads = kernels.repeat_kv(writer.ops, heads, k, v)
        if setting.kernel == "math":
            return kernels.math_attention(writer.ops, heads, (q, k, v))
        out = kernels.fused_attention(writer.ops, heads, (q, k, v), efficient=setting.kernel == "efficient")
        writer.tape.touch(k, v)
        return out
    if setting.selective == "selective":
        return kernels.recomputed_attention(writer.ops, heads, qkv, plain=writer.plain)
    return kernels.eager_attention(writer.ops, heads, qkv, plain=writer.plain)


def rotated(writer: Writer, x: Tensor, label: str) -> Tensor:
    """Rotary positions in the residual stream's type: two products and a rotated copy on the way.

    Liger's kernel writes over them (ops/rope.py).
    """
    if writer.setting.liger:
        return x
    itemsize = max(x.itemsize, writer.setting.recipe.stream)
    full = rounded(x.numel * itemsize)
    return writer.ops.unsaved(x, label, itemsize=itemsize, workspace=2 * full, backward_workspace=2 * full)


def cached(writer: Writer, x: Tensor, cache: Cache) -> Tensor:
    """Keys or values with those of the tokens before, as transformers' caches hand them on.

    A growing cache is torch.cat of what is in it and what is new; the old tensor goes when the new one stands. At first
    the new one is the cache; later it stands next to the old one for a moment.
    """
    tape, sequence = writer.tape, writer.setting.sequence
    each = x.numel // sequence
    old = each * cache.past

    def new_keys(numel: int, itemsize: int, label: str, group: str | None, uses: list[Tensor]) -> Tensor:
        out = tape.new(numel, itemsize, label, tracked=False, group=group)
        tape.record(uses, [out])
        return out

    if cache.bits is not None and not old:
        # A quantised cache: the prompt passes by as it is.
        tape.hold(new_keys(-(-int(x.numel * cache.bits) // 8), 1, "keys or values, packed", KV_CACHE, [x]))
        return x
    if cache.bits is not None:
        # Later all of it is unpacked and joined by what is new.
        unpacked = new_keys(old, x.itemsize, "keys or values, unpacked", GROWTH, [x])
        return new_keys(old + x.numel, x.itemsize, "keys or values", GROWTH, [unpacked, x])
    if cache.fixed is not None:
        # Made whole by the first token and written to from then on.
        if not cache.past:
            tape.hold(new_keys(each * cache.fixed, cache.itemsize, "keys or values", KV_CACHE, [x]))
        seen = each * cache.keys(sequence)
        if cache.itemsize != x.itemsize:
            return new_keys(seen, x.itemsize, "cache in the compute type", None, [x])
        return tape.view(x, seen)
    out = new_keys(x.numel + old, cache.itemsize, "keys or values", GROWTH if cache.past else KV_CACHE, [x])
    if not cache.past:
        tape.hold(out)
    return writer.ops.cast(out, x.itemsize, "cache in the compute type")


_TOKENS = 128  # no choice hangs on the length, from two tokens on


def kernel_of(
    model: TransformerModel,
    run: TrainRun | InferRun,
    precision: Precision,
    capability: tuple[int, int],
    *,
    masked: bool = False,
) -> Kernel:
    """The kernel in the type that `precision` multiplies in; cuDNN's needs what flash does and counts as it.

    With a mask (`masked`) transformers repeats shared key/value heads before it.
    """
    attention = run.attention
    if attention == "eager":
        return "eager"
    module = attention_of(model)
    heads = module.heads
    grouped = module.kv_heads < heads and not masked
    if grouped and not model.enable_gqa:
        return "math"
    kind = precision.partition("-")[0]
    call = AttentionCall(
        dtype={"fp8": "bf16", "tf32": "fp32"}.get(kind, kind),
        query=(1, heads, _TOKENS, module.key_dim),
        key=(1, module.kv_heads if grouped else heads, _TOKENS, module.key_dim),
        value=(1, module.kv_heads if grouped else heads, _TOKENS, module.value_dim),
        masked=masked,
        causal=not masked,
        grouped=grouped,
        release=torch_of(run),
    )
    if attention == "efficient":
        return "efficient" if can_use("efficient", call, capability) else "math"
    backend = choose_backend(call, capability)
    return "flash" if backend == "cudnn" else backend


def masks(model: TransformerModel, attention: Attention, queries: int, keys: int) -> bool:
    """Return whether sliding layers hand a mask to torch's kernels, as transformers makes one from a whole window on
    (masking_utils.py, _ignore_causal_mask_sdpa). Key/value heads are then repeated before the kernel.
    """
    window = model.sliding_window
    return attention != "eager" and window is not None and queries > 1 and keys >= window


def kernel_note(model: TransformerModel, attention: Attention, taken: Kernel) -> tuple[str, ...]:
    """Assumptions of the choice, if it is not the kernel that was asked for."""
    module = attention_of(model)
    grouped = module.kv_heads < module.heads
    if taken == "efficient" and attention != "efficient":
        return (f"{attention} attention cannot run here; torch takes its memory-efficient kernel",)
    if taken != "math":
        return ()
    if grouped and not model.enable_gqa:
        why = "the model's code broadcasts its shared key/value heads, which no fused kernel takes"
    else:
        lack = "takes no shared key/value heads before PyTorch 2.14" if grouped else "knows no bf16 there"
        why = (
            f"{attention} attention cannot run in this precision on this card, and torch's memory-efficient kernel "
            f"{lack}"
        )
    return (f"{why}: scaled_dot_product_attention spells the scores out",)


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
