"""Layers that attend: Llama's attention with what families change of it, and DeepSeek's with compressed keys."""

from vramtui.models.families.family import Layer, truth
from vramtui.models.families.keys import Keys
from vramtui.models.tensor_list import CacheList, TensorList

SLIDING = frozenset({"sliding_attention", "local", "hybrid_sliding", "sliding"})
CHUNKED = frozenset({"chunked_attention"})
WINDOWS = (
    "sliding_window", "sliding_window_size", "attention_window_size", "window_size", "local_attention_window",
    "attention_window",
)  # fmt: skip


def window_of(keys: Keys, kind: str) -> int | None:
    """The tokens that a layer of `kind` keeps; None where it keeps all.

    transformers' sliding layer keeps one token less than its window (cache_utils.py, DynamicSlidingWindowLayer).
    """
    if kind in CHUNKED:
        return keys.maybe("attention_chunk_size")
    return keys.maybe(*WINDOWS) if kind in SLIDING else None


def attention(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """Projections, norms on queries and keys, a gate, sinks; keys and values are kept."""
    sizes, keys, family = layer.sizes, layer.keys, layer.family
    bias = truth(keys, family.bias)
    output = bias if family.output_bias is None else truth(keys, family.output_bias)
    double = 2 if family.gate == "double" else 1
    tensors.linear("q_proj", sizes.queries * double, sizes.hidden, bias=bias)
    tensors.linear("k_proj", sizes.keys, sizes.hidden, bias=bias)
    tensors.linear("v_proj", sizes.values, sizes.hidden, bias=bias)
    tensors.linear("o_proj", sizes.hidden, sizes.answers, bias=output)
    _norms(tensors, layer)
    _gate(tensors, layer)
    if truth(keys, family.sinks):
        tensors.add("sinks", sizes.heads)
    caches.add(per_token=sizes.keys + sizes.values, window=window_of(keys, layer.kind))


def _norms(tensors: TensorList, layer: Layer) -> None:
    sizes, family = layer.sizes, layer.family
    if not family.qk_norm or (family.qk_norm_if and not layer.keys.flag(family.qk_norm_if)):
        return
    bias = family.qk_norm_bias
    if family.qk_norm == "head":
        tensors.norm("qk_norm", sizes.head_dim, bias=bias, count=2)
    elif family.qk_norm == "each":
        tensors.add("qk_norm", sizes.heads, sizes.head_dim)
        tensors.add("qk_norm", sizes.kv_heads, sizes.head_dim)
    else:
        tensors.norm("qk_norm", sizes.queries, bias=bias)
        tensors.norm("qk_norm", sizes.keys, bias=bias)


def _gate(tensors: TensorList, layer: Layer) -> None:
    sizes, family = layer.sizes, layer.family
    if family.gate not in {"full", "head"} or (family.gate_if and not layer.keys.flag(family.gate_if)):
        return
    tensors.linear("g_proj", sizes.answers if family.gate == "full" else sizes.heads, sizes.hidden)


def mla(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """Queries, keys and values through low ranks (DeepSeek-V2, arXiv 2405.04434); the latent and its rotary part are
    kept.
    """
    sizes, keys, family = layer.sizes, layer.keys, layer.family
    rank, turned = keys.whole("kv_lora_rank"), keys.whole("qk_rope_head_dim", default=0)
    plain, values = keys.whole("qk_nope_head_dim"), keys.whole("v_head_dim")
    query_rank, bias = keys.maybe("q_lora_rank"), truth(keys, family.bias)
    queries = sizes.heads * (plain + turned)
    if query_rank:
        tensors.linear("q_a_proj", query_rank, sizes.hidden, bias=bias)
        tensors.norm("q_a_norm", query_rank)
        tensors.linear("q_b_proj", queries, query_rank)
    else:
        tensors.linear("q_proj", queries, sizes.hidden)
    tensors.linear("kv_a_proj_with_mqa", rank + turned, sizes.hidden, bias=bias)
    tensors.norm("kv_a_norm", rank)
    tensors.linear("kv_b_proj", sizes.heads * (plain + values), rank)
    tensors.linear("o_proj", sizes.hidden, sizes.heads * values, bias=bias)
    if family.gate == "head":
        tensors.linear("g_proj", sizes.heads, sizes.hidden)
    elif family.gate == "full":
        tensors.linear("g_proj", sizes.heads * values, sizes.hidden)
    if truth(keys, family.sinks):
        tensors.add("sinks", sizes.heads)
    per_token = rank + turned + _indexer(tensors, layer, query_rank or sizes.hidden)
    caches.add(per_token=per_token, window=window_of(keys, layer.kind))


def _indexer(tensors: TensorList, layer: Layer, rank: int) -> int:
    """DeepSeek-V3.2's small keys that choose which tokens are looked at; numbers that are kept of a token."""
    keys, types = layer.keys, layer.keys.items("indexer_types")
    width, heads = keys.maybe("index_head_dim"), keys.maybe("index_n_heads")
    if not width or not heads or layer.kind in SLIDING:
        return 0
    if layer.number < len(types) and types[layer.number] != "full":
        return 0
    tensors.linear("indexer_wq_b", heads * width, rank)
    tensors.linear("indexer_wk", width, layer.sizes.hidden)
    tensors.norm("indexer_k_norm", width, bias=True)
    tensors.linear("indexer_weights_proj", heads, layer.sizes.hidden)
    return width * layer.family.index_copies


# Tokens that one compressed key stands for, where a config does not say it (configuration_deepseek_v4.py, 5.23).
COMPRESSED = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def compressed_attention(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """DeepSeek-V4's: one key that is the value as well, of a few last tokens; of the others one for every 4 or 128.

    What waits to be compressed is counted as full: at most 6 MB of V4-Flash in 16 bits.
    """
    sizes, keys = layer.sizes, layer.keys
    rank, groups = keys.whole("q_lora_rank"), keys.whole("o_groups")
    outer = groups * keys.whole("o_lora_rank")
    tensors.linear("q_a_proj", rank, sizes.hidden)
    tensors.norm("q_a_norm", rank)
    tensors.linear("q_b_proj", sizes.queries, rank)
    tensors.linear("kv_proj", sizes.head_dim, sizes.hidden)
    tensors.norm("kv_norm", sizes.head_dim)
    tensors.linear("o_a_proj", outer, sizes.queries // groups)
    tensors.linear("o_b_proj", sizes.hidden, outer)
    tensors.add("sinks", sizes.heads)
    caches.add(per_token=sizes.head_dim, window=keys.maybe(*WINDOWS))
    if layer.kind not in COMPRESSED:
        return
    rate = keys.table("compress_rates").whole(layer.kind, default=COMPRESSED[layer.kind])
    if layer.kind == "heavily_compressed_attention":
        _compressor(tensors, "compressor", sizes.head_dim, sizes.hidden, rate)
        caches.add(per_token=sizes.head_dim // rate, state=2 * rate * sizes.head_dim)
        return
    width, heads = keys.whole("index_head_dim"), keys.whole("index_n_heads")
    for name, head_width in (("compressor", sizes.head_dim), ("indexer", width)):
        _compressor(tensors, name, head_width, sizes.hidden, rate, series=2)
    tensors.linear("indexer_q_b_proj", heads * width, rank)
    tensors.linear("indexer_weights_proj", heads, sizes.hidden)
    both = sizes.head_dim + width
    caches.add(per_token=both // rate, state=(2 + 4) * rate * both)


def _compressor(tensors: TensorList, name: str, width: int, hidden: int, rate: int, *, series: int = 1) -> None:
    """What makes one key of `rate` tokens; `series`: how many it makes of each token."""
    tensors.linear(f"{name}_kv_proj", series * width, hidden)
    tensors.linear(f"{name}_gate_proj", series * width, hidden)
    tensors.add(f"{name}_position_bias", rate, series * width)
    tensors.norm(f"{name}_kv_norm", width)
