"""Decoders that share little with Llama."""

from vramtui.core.base.file_limits import MOST_LAYERS
from vramtui.models.families.attention import attention, mla
from vramtui.models.families.decoder import add_layer, add_layers, read_decoder
from vramtui.models.families.family import Family, Layer
from vramtui.models.families.feed_forward import dense
from vramtui.models.families.keys import (
    HIDDEN,
    Keys,
    LayerSizes,
    layer_count,
    sizes_of,
)
from vramtui.models.families.recurrent import mamba2
from vramtui.models.tensor_list import CacheList, TensorList

PLAIN = Family()


def _begin(tensors: TensorList, keys: Keys, *, tied: bool = False) -> LayerSizes:
    """Embedding of words and, where it is another, the output layer."""
    sizes = sizes_of(keys)
    tensors.place = "outside"
    tensors.add("embed_tokens", sizes.vocab, sizes.hidden)
    if not keys.flag("tie_word_embeddings", tied):
        tensors.add("lm_head", sizes.vocab, sizes.hidden)
    tensors.norm("norm", sizes.hidden)
    tensors.place = "layers"
    return sizes


def rwkv(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """RWKV 4 (Peng et al. 2023, arXiv 2305.13048): three states of the stream's width in fp32 and two in its type."""
    hidden, layers = keys.whole(*HIDDEN), layer_count(keys)
    wide, ffn = keys.maybe("attention_hidden_size") or hidden, keys.maybe("intermediate_size") or 4 * hidden
    tensors.place = "outside"
    tensors.add("embed_tokens", keys.whole("vocab_size"), hidden)
    if not keys.flag("tie_word_embeddings"):
        tensors.add("lm_head", keys.whole("vocab_size"), hidden)
    tensors.norm("norm", hidden, bias=True, count=2)
    tensors.place = "layers"
    tensors.norm("layer_norm", hidden, bias=True, count=2 * layers)
    tensors.add("time", wide, count=2 * layers)
    tensors.add("time_mix", hidden, count=5 * layers)
    for name in ("key", "value", "receptance"):
        tensors.linear(f"attention_{name}", wide, hidden, count=layers)
    tensors.linear("attention_output", hidden, wide, count=layers)
    tensors.linear("ffn_key", ffn, hidden, count=layers)
    tensors.linear("ffn_receptance", hidden, hidden, count=layers)
    tensors.linear("ffn_value", hidden, ffn, count=layers)
    caches.add(state=2 * hidden, state_fp32=3 * wide, layers=layers)


def xlnet(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """XLNet: positions as a projection, biases for words and places."""
    sizes, layers = sizes_of(keys), layer_count(keys)
    tensors.place = "outside"
    tensors.add("embed_tokens", sizes.vocab, sizes.hidden)
    tensors.add("mask_emb", 1, 1, sizes.hidden)
    tensors.add("lm_head", sizes.vocab)
    tensors.place = "layers"
    for name in ("q", "k", "v", "o", "r"):
        tensors.linear(f"{name}_proj", sizes.hidden, sizes.queries, count=layers)
    tensors.add("attention_bias", sizes.heads, sizes.head_dim, count=3 * layers)
    tensors.add("seg_embed", 2, sizes.heads, sizes.head_dim, count=layers)
    tensors.norm("layer_norm", sizes.hidden, bias=True, count=2 * layers)
    tensors.linear("up_proj", sizes.ffn, sizes.hidden, bias=True, count=layers)
    tensors.linear("down_proj", sizes.hidden, sizes.ffn, bias=True, count=layers)
    caches.add(per_token=sizes.hidden, window=keys.maybe("mem_len"), layers=layers)


def xlstm(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """XLSTM's matrix memory (Beck et al. 2025, arXiv 2503.13427)."""
    hidden, layers, heads = keys.whole(*HIDDEN), layer_count(keys), keys.whole("num_heads")
    queries = int(hidden * keys.number("qk_dim_factor", 0.5))
    values = int(hidden * keys.number("v_dim_factor", 1.0))
    step = keys.whole("ffn_round_up_to_multiple_of", default=64)
    ffn = -(-int(hidden * keys.number("ffn_proj_factor", 2.667)) // step) * step
    _begin(tensors, keys)
    for name, width in (("q_proj", queries), ("k_proj", queries), ("v_proj", values), ("output_gate", values)):
        tensors.linear(name, width, hidden, count=layers)
    for name in ("input_gate", "forget_gate"):
        tensors.linear(name, heads, hidden, bias=True, count=layers)
    tensors.norm("head_norm", values, count=layers)
    tensors.linear("out_proj", hidden, values, count=layers)
    tensors.norm("layer_norm", hidden, count=2 * layers)
    for name in ("gate_proj", "up_proj"):
        tensors.linear(name, ffn, hidden, count=layers)
    tensors.linear("down_proj", hidden, ffn, count=layers)
    caches.add(state_fp32=queries * values // heads + queries + heads, layers=layers)


def zamba(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """Zamba (arXiv 2405.16712): Mamba, and one attention over the stream and the words, used again and again."""
    sizes = _begin(tensors, keys, tied=True)
    hidden, wide = sizes.hidden, 2 * sizes.hidden
    layers, heads = layer_count(keys), keys.whole("n_mamba_heads", default=2)
    inner, state = keys.whole("mamba_expand", default=2) * hidden, keys.whole("mamba_d_state", default=16)
    rank, kernel = keys.whole("mamba_dt_rank"), keys.whole("mamba_d_conv", default=4)
    each = inner // heads
    tensors.add("x_proj", heads, rank + 2 * state, each, count=layers)
    tensors.add("dt_proj", heads, each, rank, count=layers)
    tensors.add("dt_bias", heads, each, count=layers)
    tensors.add("A_log", heads, each, state, count=layers)
    tensors.add("D", heads, each, count=layers)
    tensors.conv("conv1d", inner, 1, kernel, bias=keys.flag("mamba_conv_bias", default=True), count=layers)
    tensors.linear("in_proj", 2 * inner, hidden, bias=keys.flag("mamba_proj_bias"), count=layers)
    tensors.linear("out_proj", hidden, inner, bias=keys.flag("mamba_proj_bias"), count=layers)
    tensors.norm("layer_norm", hidden, count=layers)
    hybrids = sum(kind == "hybrid" for kind in keys.items("layers_block_type"))
    tensors.linear("linear", hidden, hidden, count=hybrids)
    _shared_block(tensors, keys, sizes, wide)
    for kind in keys.items("layers_block_type"):
        attends = 2 * sizes.heads * keys.whole("attention_head_dim") if kind == "hybrid" else 0
        caches.add(per_token=attends, state=inner * kernel, state_fp32=inner * state)


def _shared_block(tensors: TensorList, keys: Keys, sizes: LayerSizes, wide: int) -> None:
    width = sizes.heads * keys.whole("attention_head_dim")
    for name in ("q_proj", "k_proj", "v_proj"):
        tensors.linear(name, width, wide)
    tensors.linear("o_proj", sizes.hidden, width)
    for name in ("gate_proj", "up_proj"):
        tensors.linear(name, sizes.ffn, sizes.hidden)
    tensors.linear("down_proj", sizes.hidden, sizes.ffn)
    tensors.norm("shared_norm", wide)
    tensors.norm("shared_norm", sizes.hidden)


def zamba2(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """Zamba 2: Mamba 2, and shared blocks with low ranks of their own for each use."""
    hidden, mamba_heads = keys.whole("hidden_size"), max(1, keys.whole("n_mamba_heads", default=1))
    widths = {
        "mamba_headdim": keys.whole("mamba_expand", default=2) * hidden // mamba_heads,
        "attention_head_dim": 2 * hidden // max(1, keys.whole("num_attention_heads", default=1)),
    }
    keys = keys.changed(**{name: width for name, width in widths.items() if not keys.maybe(name)})
    sizes = _begin(tensors, keys, tied=True)
    kinds = keys.items("layers_block_type")
    for number, kind in enumerate(kinds):
        layer = Layer(keys=keys, sizes=sizes, number=number, kind=str(kind), sparse=False, family=PLAIN)
        own = CacheList()
        mamba2(tensors, own, layer)
        tensors.norm("layer_norm", sizes.hidden)
        (state,) = own.groups()
        attends = 2 * sizes.heads * keys.whole("attention_head_dim") if kind == "hybrid" else 0
        caches.add(per_token=attends, state=state.state, state_fp32=state.state_fp32)
    uses = sum(kind == "hybrid" for kind in kinds)
    tensors.linear("linear", sizes.hidden, sizes.hidden, count=uses)
    rank, wide = keys.whole("adapter_rank", default=128), 2 * sizes.hidden
    for _ in range(min(keys.whole("num_mem_blocks", default=1), MOST_LAYERS)):
        _shared_block(tensors, keys, sizes, wide)
    tensors.linear("adapter_a", rank, sizes.hidden, count=uses)
    tensors.linear("adapter_b", 2 * sizes.ffn, rank, count=uses)
    if keys.flag("use_shared_attention_adapter"):
        tensors.linear("attn_adapter_a", rank, wide, count=3 * uses)
        tensors.linear("attn_adapter_b", wide, rank, count=3 * uses)


def jetmoe(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """JetMoE: queries and outputs are made by experts as well."""
    sizes, layers = _begin(tensors, keys, tied=True), layer_count(keys)
    experts, width = keys.whole("num_local_experts"), keys.whole("kv_channels")
    kv_size = sizes.kv_heads * width
    tensors.linear("kv_proj", 2 * kv_size, sizes.hidden, count=layers)
    tensors.add("experts_q_proj", experts, kv_size, sizes.hidden, count=layers)
    tensors.add("experts_o_proj", experts, sizes.hidden, kv_size, count=layers)
    tensors.add("experts_gate_up_proj", experts, 2 * sizes.ffn, sizes.hidden, count=layers)
    tensors.add("experts_down_proj", experts, sizes.hidden, sizes.ffn, count=layers)
    tensors.linear("router", experts, sizes.hidden, count=2 * layers)
    tensors.add("experts_bias", sizes.hidden, count=2 * layers)
    tensors.norm("layer_norm", sizes.hidden, count=2 * layers)
    chosen = keys.whole("num_experts_per_tok", default=2)
    caches.add(per_token=2 * kv_size * chosen, layers=layers)


def longcat(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """LongCat-Flash (arXiv 2509.01322): two attentions and two MLPs a layer, experts beside; some do nothing."""
    sizes, layers = _begin(tensors, keys), layer_count(keys, "num_layers")
    experts, empty = keys.whole("n_routed_experts"), keys.whole("zero_expert_num", default=0)
    width, ffn = keys.whole("expert_ffn_hidden_size"), keys.whole("ffn_hidden_size")
    for number in range(2 * layers):
        layer = Layer(keys=keys, sizes=sizes, number=number, kind="full_attention", sparse=False, family=PLAIN)
        mla(tensors, caches, layer)
        dense(tensors, layer, ffn)
        tensors.norm("layer_norm", sizes.hidden, count=2)
    tensors.add("experts_gate_up_proj", experts + empty, 2 * width, sizes.hidden, count=layers)
    tensors.add("experts_down_proj", experts, sizes.hidden, width, count=layers)
    tensors.linear("router", experts + empty, sizes.hidden, bias=keys.flag("router_bias"), count=layers)
    tensors.add("router", experts + empty, count=layers)


def hrm(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """HRM: two stacks of layers, each used several times; every use keeps keys and values of its own."""
    sizes = sizes_of(keys)
    tensors.place = "outside"
    tensors.add("embed_tokens", sizes.vocab, sizes.hidden)
    tensors.add("lm_head", sizes.vocab, sizes.hidden)
    tensors.add("z_init", sizes.hidden)
    tensors.place = "layers"
    stack = keys.changed(num_hidden_layers=2 * keys.whole("num_layers_per_stack"))
    add_layers(tensors, CacheList(), stack, Family(norm=0, gate="full"))
    for _ in range(layer_count(keys)):
        caches.add(per_token=2 * sizes.keys)


def mllama(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """Llama 3.2 Vision's decoder: some layers look at the image instead of the words."""
    sizes = sizes_of(keys)
    tensors.place = "outside"
    tensors.add("embed_tokens", sizes.vocab + 8, sizes.hidden)
    tensors.add("lm_head", sizes.vocab, sizes.hidden)
    tensors.norm("norm", sizes.hidden)
    tensors.place = "layers"
    crossing = keys.items("cross_attention_layers")
    for number in range(layer_count(keys)):
        crosses = number in crossing
        family = Family(qk_norm="head" if crosses else "")
        layer = Layer(keys=keys, sizes=sizes, number=number, kind="full_attention", sparse=False, family=family)
        add_layer(tensors, CacheList() if crosses else caches, layer)
        tensors.add("cross_gate", 1, count=2 * crosses)


def prophetnet(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """ProphetNet's decoder, which predicts several words at once."""
    hidden, layers = keys.whole("hidden_size"), keys.whole("num_decoder_layers")
    ffn, buckets = keys.whole("decoder_ffn_dim"), keys.whole("num_buckets", default=32)
    heads, grams = keys.whole("num_decoder_attention_heads"), keys.whole("ngram", default=2)
    tensors.place = "outside"
    tensors.add("embed_tokens", keys.whole("vocab_size"), hidden)
    tensors.add("embed_positions", keys.whole("max_position_embeddings"), hidden)
    tensors.add("embed_ngram", grams, hidden)
    tensors.norm("embed_norm", hidden, bias=True)
    tensors.place = "layers"
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        tensors.linear(name, hidden, hidden, bias=True, count=2 * layers)
    tensors.linear("relative_positions", buckets * heads, hidden, bias=True, count=layers)
    tensors.linear("up_proj", ffn, hidden, bias=True, count=layers)
    tensors.linear("down_proj", hidden, ffn, bias=True, count=layers)
    tensors.norm("layer_norm", hidden, bias=True, count=3 * layers)
    caches.add(per_token=2 * hidden, layers=layers)


def blt(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
    """Byte Latent Transformer (arXiv 2412.09871): small models around a large one that sees patches of bytes."""
    big = keys.table("global_config")
    wide, plain = big.whole("hidden_size"), Family(norm=1)
    for name in ("encoder_config", "decoder_config", "global_config", "patcher_config"):
        part = keys.table(name)
        sizes = sizes_of(part)
        tensors.place = "layers"
        add_layers(tensors, caches if name == "global_config" else CacheList(), part, plain)
        if name in {"encoder_config", "decoder_config"}:
            narrow = wide if name == "decoder_config" else sizes.hidden
            tensors.linear("patch_projection", sizes.hidden * keys.whole("cross_attn_k", default=2), narrow)
            crosses = layer_count(part) if part.flag("cross_attn_all_layers") else 1
            for _ in range(crosses):
                layer = Layer(keys=part, sizes=sizes, number=0, kind="cross", sparse=False, family=PLAIN)
                attention(tensors, CacheList(), layer)
                tensors.norm("cross_norm", sizes.hidden, count=2)
        tensors.place = "outside"
        if name in {"decoder_config", "patcher_config"}:
            tensors.norm("norm", sizes.hidden)
            tensors.add("lm_head", part.whole("vocab_size"), sizes.hidden)
        if name in {"encoder_config", "patcher_config"}:
            tensors.add("embed_tokens", part.whole("vocab_size"), sizes.hidden)
    groups = len(keys.items("encoder_hash_byte_group_size"))
    rows = keys.whole("encoder_hash_byte_group_vocab") * groups * keys.whole("encoder_hash_byte_group_nb_functions")
    tensors.add("embed_hash", rows, keys.table("encoder_config").whole("hidden_size"))


OTHER_DECODERS: dict[str, Family] = {
    "blt": Family(whole=blt),
    "hrm_text": Family(whole=hrm),
    "jetmoe": Family(whole=jetmoe, tied=True),
    "longcat_flash": Family(whole=longcat),
    "mllama_text_model": Family(whole=mllama),
    "prophetnet": Family(whole=prophetnet, tied=True),
    "rwkv": Family(whole=rwkv),
    "xlnet": Family(whole=xlnet, tied=True),
    "xlstm": Family(whole=xlstm),
    "zamba": Family(whole=zamba, tied=True),
    "zamba2": Family(whole=zamba2, tied=True),
}

__all__ = ["OTHER_DECODERS", "read_decoder"]
