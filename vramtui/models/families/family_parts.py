"""What single families of decoders have and no other has; each is named by `families`."""

import msgspec

from vramtui.models.families.attention import SLIDING, attention, window_of
from vramtui.models.families.family import Layer
from vramtui.models.families.feed_forward import dense, experts, shared_width
from vramtui.models.families.keys import Keys, LayerSizes, layer_count, sizes_of
from vramtui.models.families.modelled import falcon_norms
from vramtui.models.families.public_keys import SPARSE, deci_width
from vramtui.models.tensor_list import CacheList, TensorList

FULL, LINEAR = "full_attention", "linear_attention"

# Of how many numbers the time of Voxtral Realtime's norms is (transformers 5.23, modeling_voxtral_realtime.py).
DELAY_RANK = 32


def no_mlp(_tensors: TensorList, _caches: CacheList, _layer: Layer) -> None:
    """Layers that only mix (Mamba)."""


no_mixer = no_mlp


def mamba_kinds(_keys: Keys, count: int) -> list[str]:
    """Every layer keeps a state."""
    return [LINEAR] * count


def bamba_kinds(keys: Keys, count: int) -> list[str]:
    """The layers that attend are listed by number."""
    attends = keys.items("attn_layer_indices")
    return [FULL if number in attends else LINEAR for number in range(count)]


def jamba_kinds(keys: Keys, count: int) -> list[str]:
    """One layer of a period attends."""
    period, offset = keys.whole("attn_layer_period", default=8), keys.whole("attn_layer_offset", default=4)
    return [FULL if number % max(period, 1) == offset else LINEAR for number in range(count)]


def minimax_kinds(keys: Keys, count: int) -> list[str]:
    """The kinds of MiniMax's layers: as listed, else every second attends. Older files give numbers."""
    listed = keys.items("layer_types") or keys.items("attn_type_list")
    if len(listed) == count:
        return [FULL if kind in (FULL, 1) else LINEAR for kind in listed]
    return [LINEAR if number % 2 else FULL for number in range(count)]


def qwen_kinds(keys: Keys, count: int) -> list[str]:
    """The kinds of Qwen's layers: as listed, else layers from `max_window_layers` on slide, where any do."""
    listed = keys.items("layer_types")
    if len(listed) >= count:
        return list(map(str, listed[:count]))
    first = keys.whole("max_window_layers", default=28) if keys.flag("use_sliding_window") else count
    return [FULL if number < first else "sliding_attention" for number in range(count)]


def falcon_layer(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """Add as many norms as attention and MLP do not share."""
    tensors.norm("layer_norm", layer.sizes.hidden, bias=True, count=falcon_norms(layer.keys))


def apertus_activation(tensors: TensorList, _caches: CacheList, _layer: Layer) -> None:
    """XIELU's two learned numbers."""
    tensors.add("act_alpha", 1, count=2)


def post_mlp_norm(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """A norm after the experts."""
    tensors.norm("post_mlp_norm", layer.sizes.hidden, count=int(layer.sparse))


def beam_gate_bias(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """A number for each head on the gate."""
    tensors.add("gate_bias", layer.sizes.heads)


def bitnet_norms(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """Norms before both output projections."""
    tensors.norm("attn_sub_norm", layer.sizes.hidden)
    tensors.norm("ffn_sub_norm", layer.sizes.ffn)


def diff_lambdas(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """Differential attention's four vectors."""
    tensors.add("lambda", layer.sizes.head_dim, count=4)


def rope_norm(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """A norm on the rotary part of the keys."""
    tensors.norm("k_rope_norm", layer.keys.whole("qk_rope_head_dim"))


def doge_layer(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """Dynamic masks and weighted residuals."""
    sizes = layer.sizes
    tensors.add("residual", sizes.hidden, count=2)
    tensors.add("A", sizes.kv_heads)
    tensors.linear("dt_proj", sizes.kv_heads, sizes.keys)


def hyper_layer(tensors: TensorList, _caches: CacheList, layer: Layer, *, mixed: bool = False) -> None:
    """Hyper-connections: several streams are mixed before attention and MLP, and by `mixed` with each other after."""
    streams = layer.keys.whole("hc_mult")
    rows, scales = (2 + streams * mixed) * streams, 2 + mixed
    for _ in ("attention", "MLP"):
        tensors.add("hyper_fn", rows, streams * layer.sizes.hidden)
        tensors.add("hyper_base", rows)
        tensors.add("hyper_scale", scales)


def hyper_head(tensors: TensorList, keys: Keys, sizes: LayerSizes) -> None:
    """The streams joined at the end."""
    streams = keys.whole("hc_mult")
    tensors.add("hyper_head_fn", streams, streams * sizes.hidden)
    tensors.add("hyper_head_base", streams)
    tensors.add("hyper_head_scale", 1)


def add_moshi_row(tensors: TensorList, _keys: Keys, sizes: LayerSizes) -> None:
    """One word more, which begins a sequence."""
    tensors.add("embed_tokens", 1, sizes.hidden)


def add_codes(tensors: TensorList, keys: Keys, sizes: LayerSizes) -> None:
    """Words of every codebook of a codec beside those of the vocabulary, and one for silence."""
    codes = keys.whole("num_codebooks", default=32) * keys.whole("codebook_vocab_size", default=2049)
    tensors.add("embed_tokens", codes + 1, sizes.hidden)


def add_rows(tensors: TensorList, keys: Keys, sizes: LayerSizes) -> None:
    """Words of images beside those of the vocabulary."""
    tensors.add("embed_tokens", keys.whole("additional_vocab_size", default=0), sizes.hidden)


def ernie_experts(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """Experts for words and others for images, of a width each, and some for all of them."""
    words, images = layer.keys.items("moe_intermediate_size") or (layer.sizes.ffn, layer.sizes.ffn)
    shared = layer.keys.whole("moe_num_shared_experts", default=0)
    for width in (words, images):
        own = layer.keys.changed(moe_intermediate_size=width, moe_num_shared_experts=0)
        experts(tensors, msgspec.structs.replace(layer, keys=own))
    if shared:
        dense(tensors, layer, words * shared, "shared_")


def cpm_ant_tables(tensors: TensorList, keys: Keys, sizes: LayerSizes) -> None:
    """Words with prompts among them, segments, and biases for distances."""
    prompts = keys.whole("prompt_types", default=32) * keys.whole("prompt_length", default=32)
    segments = keys.whole("segment_types", default=32)
    tensors.add("embed_input", sizes.vocab + prompts, sizes.hidden)
    tensors.add("embed_segment", segments, sizes.hidden)
    tensors.add("position_bias", segments**2 + keys.whole("position_bias_num_buckets", default=512), sizes.heads)


def mimo_attention(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """MiMo-V2's: sliding layers have sinks and, if so configured, other heads."""
    slides, keys = layer.kind in SLIDING, layer.keys
    if slides:
        keys = keys.changed(
            num_attention_heads=keys.maybe("swa_num_attention_heads") or layer.sizes.heads,
            num_key_value_heads=keys.whole("swa_num_key_value_heads", default=8),
            head_dim=keys.maybe("swa_head_dim") or layer.sizes.head_dim,
            v_head_dim=keys.maybe("swa_v_head_dim") or layer.sizes.value_dim,
        )
    attention(tensors, caches, msgspec.structs.replace(layer, keys=keys, sizes=sizes_of(keys)))
    if layer.keys.flag("add_swa_attention_sink_bias" if slides else "add_full_attention_sink_bias", default=slides):
        tensors.add("sinks", layer.sizes.heads)


def modernbert_layer(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """The first layer's attention has no norm: the embeddings have one."""
    tensors.norm("attn_norm", layer.sizes.hidden, count=int(layer.number > 0))


def modernbert_head(tensors: TensorList, keys: Keys, sizes: LayerSizes) -> None:
    """A norm of the embeddings, and a layer before the output layer."""
    tensors.norm("embed_norm", sizes.hidden, bias=keys.flag("norm_bias"))
    tensors.linear("head_dense", sizes.hidden, sizes.hidden, bias=keys.flag("classifier_bias"))
    tensors.norm("head_norm", sizes.hidden, bias=keys.flag("norm_bias"))


def granite_hybrid_mlp(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """Without experts only the MLP for all tokens is there."""
    dense(tensors, layer, shared_width(layer.keys, layer.sizes.ffn), "shared_")


def nemotron_mlp(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """Each layer is one thing: this one an MLP."""
    if layer.kind == "mlp":
        dense(tensors, layer, layer.sizes.ffn)


def nemotron_experts(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """A layer that is nothing else."""
    experts(tensors, layer)
    tensors.add("router", layer.keys.whole("n_routed_experts"))


def minimax_m3_indexer(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """The small keys by which blocks are chosen."""
    if layer.kind != SPARSE:
        return
    keys, own = layer.keys, layer.keys.table("sparse_attention_config")
    width = own.maybe("sparse_index_dim") or keys.whole("index_head_dim", default=128)
    heads = own.maybe("sparse_num_index_heads") or keys.whole("index_n_heads", default=4)
    tensors.linear("indexer_q_proj", heads * width, layer.sizes.hidden)
    tensors.linear("indexer_k_proj", width, layer.sizes.hidden)
    tensors.norm("indexer_norm", width, count=2)
    caches.add(per_token=width)


def deepseek_v4_layer(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """Mixed streams, and what balances the experts that are chosen by what a token is. Configs of before
    `mlp_layer_types` say how many layers choose by a hash, three where they do not (transformers 5.23,
    models/deepseek_v4/configuration_deepseek_v4.py).
    """
    kinds, number = layer.keys.items("mlp_layer_types"), layer.number
    listed = kinds[number : number + 1] == ["hash_moe"]
    hashed = listed if kinds else number < layer.keys.whole("num_hash_layers", default=3)
    if not hashed:
        tensors.add("router", layer.keys.whole("n_routed_experts"))
    hyper_layer(tensors, caches, layer, mixed=True)


def deci_layer(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """Attention and MLP as the layer's block says: as usual, one linear layer, or nothing."""
    hidden, blocks = layer.sizes.hidden, layer.keys.items("block_configs")
    block = Keys(blocks[layer.number] if layer.number < len(blocks) else {})
    attends, ffn = block.table("attention"), block.table("ffn")
    shared, width = attends.maybe("n_heads_in_group"), deci_width(block, hidden)
    if shared:
        sizes = msgspec.structs.replace(layer.sizes, kv_heads=layer.sizes.heads // shared)
        attention(tensors, caches, msgspec.structs.replace(layer, sizes=sizes))
    elif attends.flag("replace_with_linear"):
        tensors.linear("attn_linear", hidden, hidden)
    if width and not ffn.flag("no_op") and not ffn.flag("replace_with_linear"):
        dense(tensors, layer, width)
    elif ffn.flag("replace_with_linear"):
        tensors.linear("mlp_linear", hidden, hidden)
    tensors.norm("layer_norm", hidden, count=(not attends.flag("no_op")) + (not ffn.flag("no_op")))


def gemma4_attention(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """Layers that share keys and values have none of their own; keys may be values as well."""
    sizes, keys = layer.sizes, layer.keys
    bias = keys.flag("attention_bias")
    own = layer.number < layer_count(keys) - keys.whole("num_kv_shared_layers", default=0)
    same = keys.flag("attention_k_eq_v") and layer.kind not in SLIDING
    tensors.linear("q_proj", sizes.queries, sizes.hidden, bias=bias)
    tensors.norm("qk_norm", sizes.head_dim, count=1 + own)
    if own:
        tensors.linear("k_proj", sizes.keys, sizes.hidden, bias=bias)
        if not same:
            tensors.linear("v_proj", sizes.values, sizes.hidden, bias=bias)
    tensors.linear("o_proj", sizes.hidden, sizes.answers, bias=bias)
    caches.add(per_token=2 * sizes.keys, window=window_of(keys, layer.kind))


def gemma4_mlp(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """Layers with shared keys may have twice the width; experts stand beside the MLP."""
    keys, sizes = layer.keys, layer.sizes
    own = layer.number < layer_count(keys) - keys.whole("num_kv_shared_layers", default=0)
    dense(tensors, layer, sizes.ffn * (1 if own or not keys.flag("use_double_wide_mlp") else 2))
    if keys.flag("enable_moe_block"):
        experts(tensors, layer)
        tensors.add("router", sizes.hidden)
        tensors.add("router", keys.whole("num_experts"))
        tensors.norm("moe_norm", sizes.hidden, count=3)


def gemma3n_layer(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """Several streams (AltUp, Baykal et al. 2023, arXiv 2301.13310), a learned way round (LAuReL, Menghani et al. 2024,
    arXiv 2411.07501), and a gate for what the layer gets of the words.
    """
    streams, hidden = layer.keys.whole("altup_num_inputs", default=4), layer.sizes.hidden
    rank = layer.keys.whole("laurel_rank", default=64)
    tensors.add("altup_scale", hidden)
    tensors.linear("altup_correction", streams, streams)
    tensors.linear("altup_prediction", streams * streams, streams)
    tensors.linear("altup_router", streams, hidden)
    tensors.norm("altup_norm", hidden)
    tensors.linear("laurel_left", rank, hidden)
    tensors.linear("laurel_right", hidden, rank)
    tensors.norm("laurel_norm", hidden)
    _per_layer_gate(tensors, layer)


def gemma3n_inputs(tensors: TensorList, keys: Keys, sizes: LayerSizes) -> None:
    """Words embedded once more for every layer, and what makes the other streams and joins them again."""
    gemma4_inputs(tensors, keys, sizes)
    streams = keys.whole("altup_num_inputs", default=4)
    tensors.linear("altup_projection", sizes.hidden, sizes.hidden, count=2 * (streams - 1))


def gemma4_layer(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """A number, and a gate for what each layer gets of the words."""
    tensors.add("layer_scalar", 1)
    _per_layer_gate(tensors, layer)


def _per_layer_gate(tensors: TensorList, layer: Layer) -> None:
    width = layer.keys.maybe("hidden_size_per_layer_input")
    if width:
        tensors.linear("per_layer_input_gate", width, layer.sizes.hidden)
        tensors.linear("per_layer_projection", layer.sizes.hidden, width)
        tensors.norm("per_layer_norm", layer.sizes.hidden)


def gemma4_inputs(tensors: TensorList, keys: Keys, sizes: LayerSizes) -> None:
    """Words embedded once more for every layer."""
    width = keys.maybe("hidden_size_per_layer_input")
    if width:
        layers = layer_count(keys)
        tensors.add("embed_tokens_per_layer", keys.whole("vocab_size_per_layer_input"), layers * width)
        tensors.linear("per_layer_model_projection", layers * width, sizes.hidden)
        tensors.norm("per_layer_projection_norm", width)
