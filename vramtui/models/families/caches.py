"""Caches of each layer of a decoder: keys and values, or states, as transformers 5.23 has them.

Convolutions' inputs are in the model's type, recurrent states in fp32 where its code says so (cache_utils.py,
LinearAttentionLayer). A sliding layer keeps one token less than its window (DynamicSlidingWindowLayer).
"""

from functools import partial

import msgspec

from vramtui.models.families.keys import HIDDEN, Keys, LayerSizes, layer_count, sizes_of
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.tensor_list import CacheList

FULL, SLIDES, LINEAR = "full_attention", "sliding_attention", "linear_attention"
SPARSE = "minimax_m3_sparse"
SLIDING = frozenset({SLIDES, "local", "hybrid_sliding", "sliding"})
WINDOWS = (
    "sliding_window", "sliding_window_size", "attention_window_size", "window_size", "local_attention_window",
    "attention_window",
)  # fmt: skip
LISTS = ("layer_types", "layers_block_type", "attention_layers", "hybrid_layer_pattern")
PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
# What other families call the same kinds.
NAMES: dict[str | int, str] = {
    "attention": FULL, "global": FULL, "mamba": LINEAR, "mamba2": LINEAR, "recurrent": LINEAR, "local": SLIDES,
    0: FULL, 1: SLIDES,
}  # fmt: skip
# Tokens that one compressed key stands for, if the config does not say it (configuration_deepseek_v4.py).
COMPRESSED = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of a model: its keys (its own first), sizes, number and kind (`full_attention` …)."""

    keys: Keys
    sizes: LayerSizes
    number: int
    kind: str


def kinds_of(keys: Keys, count: int) -> list[str]:
    """The kind of each layer, by the keys that most families use."""
    for name in LISTS:
        listed = keys.items(name)
        # Layers that predict a second token may be listed with the rest.
        if len(listed) >= count and all(isinstance(kind, (str, int)) for kind in listed):
            return [NAMES.get(kind, str(kind)) for kind in listed[:count]]
    listed = keys.items("block_types")
    if listed:
        return [NAMES.get(str(listed[number % len(listed)]), FULL) for number in range(count)]
    step, other = keys.maybe("full_attention_interval"), LINEAR
    if not step:
        # EXAONE 4 says LLLG: three that slide, one that looks back all the way.
        step, other = keys.maybe(*PATTERNS) or keys.text(PATTERNS[0]).find("G") + 1, SLIDES
    if step:
        return [FULL if (number + 1) % step == 0 else other for number in range(count)]
    slides = keys.maybe("sliding_window") and keys.flag("use_sliding_window", default=True)
    return [SLIDES if slides else FULL] * count


def minimax_kinds(keys: Keys, count: int) -> list[str]:
    """Return MiniMax's layers as listed, else every second attends. Older files give numbers."""
    listed = keys.items("layer_types") or keys.items("attn_type_list")
    if len(listed) == count:
        return [FULL if kind in (FULL, 1) else LINEAR for kind in listed]
    return [LINEAR if number % 2 else FULL for number in range(count)]


def own_keys(keys: Keys, number: int, count: int) -> Keys:
    """The keys of one layer, which may have some of its own."""
    own, changed = keys.values.get("per_layer_config"), {}
    if isinstance(own, dict):
        layer = own.get(str(number).zfill(len(str(count - 1))), own.get(str(number)))
        changed = dict(layer) if isinstance(layer, dict) else {}
    if number < len(heads := keys.items("num_attention_heads_per_layer")):
        changed["num_attention_heads"] = heads[number]
    return keys.changed(**changed) if changed else keys


def window_of(layer: Layer) -> int | None:
    """The tokens that a layer keeps; None if it keeps all."""
    if layer.kind == "chunked_attention":
        return layer.keys.maybe("attention_chunk_size")
    return layer.keys.maybe(*WINDOWS) if layer.kind in SLIDING else None


def attention(caches: CacheList, layer: Layer) -> None:
    caches.add(per_token=layer.sizes.keys + layer.sizes.values, window=window_of(layer))


def mla(caches: CacheList, layer: Layer, *, copies: int = 1) -> None:
    """The latent and its rotary part (DeepSeek-V2, arXiv 2405.04434); `copies` of V3.2's small keys that choose which
    tokens are looked at.
    """
    keys, types = layer.keys, layer.keys.items("indexer_types")
    per_token = keys.whole("kv_lora_rank") + keys.whole("qk_rope_head_dim", default=0)
    is_shared = layer.number < len(types) and types[layer.number] != "full"
    if keys.maybe("index_n_heads") and layer.kind not in SLIDING and not is_shared:
        per_token += copies * (keys.maybe("index_head_dim") or 0)
    caches.add(per_token=per_token, window=window_of(layer))


def compressed_attention(caches: CacheList, layer: Layer) -> None:
    """DeepSeek-V4's: one key that is the value as well, of a few last tokens; of the others one for every 4 or 128.

    What waits to be compressed is counted as full: 6 MB or less for V4-Flash in 16 bits.
    """
    keys, width = layer.keys, layer.sizes.head_dim
    caches.add(per_token=width, window=keys.maybe(*WINDOWS))
    if layer.kind not in COMPRESSED:
        return
    if layer.kind == "heavily_compressed_attention":
        rate = keys.whole("heavy_rate")
        caches.add(per_token=width // rate, state=2 * rate * width)
    else:
        rate, both = keys.whole("sparse_rate"), width + keys.whole("index_head_dim")
        caches.add(per_token=both // rate, state=(2 + 4) * rate * both)


def mimo_attention(caches: CacheList, layer: Layer) -> None:
    """MiMo-V2's: sliding layers may have other heads."""
    keys, sizes = layer.keys, layer.sizes
    if layer.kind in SLIDING:
        width = keys.maybe("swa_head_dim") or sizes.head_dim
        values = keys.maybe("swa_v_head_dim") or sizes.value_dim
        heads = keys.whole("swa_num_key_value_heads", default=8)
        sizes = msgspec.structs.replace(sizes, kv_heads=heads, head_dim=width, value_dim=values)
    attention(caches, msgspec.structs.replace(layer, sizes=sizes))


def minimax_m3_attention(caches: CacheList, layer: Layer) -> None:
    """Attention, and the small keys by which blocks are chosen."""
    attention(caches, layer)
    if layer.kind == SPARSE:
        caches.add(per_token=layer.keys.whole("index_head_dim", default=128))


def gemma4_attention(caches: CacheList, layer: Layer) -> None:
    caches.add(per_token=2 * layer.sizes.keys, window=window_of(layer))


def deci_attention(caches: CacheList, layer: Layer) -> None:
    heads = layer.keys.items("kv_heads_of_blocks")[layer.number]
    caches.add(per_token=heads * (layer.sizes.head_dim + layer.sizes.value_dim))


def nothing(_caches: CacheList, _layer: Layer) -> None:
    """A layer that only has an MLP."""


def mamba1(caches: CacheList, layer: Layer) -> None:
    """Mamba (Gu and Dao 2023, arXiv 2312.00752)."""
    keys = layer.keys
    inner = keys.whole("mamba_expand", "expand", default=2) * layer.sizes.hidden
    if keys.maybe("mamba_d_state") is None:
        inner = keys.maybe("intermediate_size") or inner
    kernel = keys.whole("mamba_d_conv", "conv_kernel", default=4)
    caches.add(state=inner * kernel, state_fp32=inner * keys.whole("mamba_d_state", "state_size", default=16))


def mamba2(caches: CacheList, layer: Layer) -> None:
    """Mamba 2 (Dao and Gu 2024, arXiv 2405.21060)."""
    keys = layer.keys
    heads = keys.whole("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    width = keys.whole("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim")
    groups = keys.whole("mamba_n_groups", "mamba_ngroups", "n_groups", default=1)
    state = keys.whole("mamba_d_state", "ssm_state_size", "state_size")
    mixed = (keys.maybe("mamba_d_ssm") or heads * width) + 2 * groups * state
    kernel = keys.whole("mamba_d_conv", "conv_kernel", default=4)
    caches.add(state=mixed * kernel, state_fp32=heads * width * state)


def attention_and_mamba2(caches: CacheList, layer: Layer) -> None:
    """The caches of a layer of Falcon-H1: attention next to a Mamba 2 state."""
    attention(caches, layer)
    mamba2(caches, layer)


def delta(caches: CacheList, layer: Layer) -> None:
    """The gated delta rule (Yang et al. 2024, arXiv 2412.06464), Kimi Linear's too (arXiv 2510.26692)."""
    keys = layer.keys
    heads = keys.whole("linear_num_key_heads", "linear_num_heads", "num_heads")
    value_heads = keys.maybe("linear_num_value_heads") or heads
    width = keys.whole("linear_key_head_dim", "linear_head_dim", "head_dim")
    value_width = keys.maybe("linear_value_head_dim") or width
    kernel = keys.whole("linear_conv_kernel_dim", "short_conv_kernel_size", default=4)
    mixed = 2 * heads * width + value_heads * value_width
    caches.add(state=mixed * kernel, state_fp32=value_heads * width * value_width)


def lightning(caches: CacheList, layer: Layer) -> None:
    """MiniMax's lightning attention (arXiv 2501.08313)."""
    caches.add(state=layer.sizes.heads * layer.sizes.head_dim**2)


def rg_lru(caches: CacheList, layer: Layer) -> None:
    """RecurrentGemma's recurrent block (De et al. 2024, arXiv 2402.19427)."""
    width = layer.keys.maybe("lru_width") or layer.sizes.hidden
    caches.add(state=width * (layer.keys.whole("conv1d_width", default=4) - 1), state_fp32=width)


def short_conv(caches: CacheList, layer: Layer) -> None:
    caches.add(state=layer.sizes.hidden * layer.keys.whole("conv_L_cache", default=3))


def by_keys(caches: CacheList, layer: Layer) -> None:
    """The state of a layer of an unknown family, by the sizes that its config has, or keys and values."""
    keys, state = layer.keys, attention
    if keys.maybe("linear_num_key_heads", "linear_num_heads") or (
        keys.maybe("short_conv_kernel_size") and keys.maybe("linear_head_dim")
    ):
        state = delta
    elif keys.maybe("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"):
        state = mamba2
    elif keys.maybe("mamba_d_state", "state_size"):
        state = mamba1
    elif keys.maybe("lru_width"):
        state = rg_lru
    elif keys.maybe("conv_L_cache"):
        state = short_conv
    try:
        state(caches, layer)
    except DamagedError:
        attention(caches, layer)


# Models whose layers are not of these kinds.


def rwkv(caches: CacheList, keys: Keys) -> None:
    """RWKV 4 (Peng et al. 2023, arXiv 2305.13048): three states in fp32 and two of the stream's width in its type."""
    hidden = keys.whole(*HIDDEN)
    wide = keys.maybe("attention_hidden_size") or hidden
    caches.add(state=2 * hidden, state_fp32=3 * wide, layers=layer_count(keys))


def xlnet(caches: CacheList, keys: Keys) -> None:
    """XLNet: the stream of the last tokens."""
    caches.add(per_token=keys.whole(*HIDDEN), window=keys.maybe("mem_len"), layers=layer_count(keys))


def xlstm(caches: CacheList, keys: Keys) -> None:
    """XLSTM's matrix memory (Beck et al. 2025, arXiv 2503.13427)."""
    hidden, heads = keys.whole(*HIDDEN), keys.whole("num_heads")
    queries, values = (
        int(hidden * keys.number(name, usual)) for name, usual in (("qk_dim_factor", 0.5), ("v_dim_factor", 1.0))
    )
    caches.add(state_fp32=queries * values // heads + queries + heads, layers=layer_count(keys))


def zamba(caches: CacheList, keys: Keys) -> None:
    """Zamba (arXiv 2405.16712): Mamba in each layer, and one attention over the stream and the words in some."""
    inner = keys.whole("mamba_expand", default=2) * keys.whole(*HIDDEN)
    state, kernel = inner * keys.whole("mamba_d_state", default=16), keys.whole("mamba_d_conv", default=4)
    attends = 2 * sizes_of(keys).heads * keys.whole("attention_head_dim")
    for kind in keys.items("layers_block_type"):
        caches.add(per_token=attends if kind == "hybrid" else 0, state=inner * kernel, state_fp32=state)


def zamba2(caches: CacheList, keys: Keys) -> None:
    """Zamba 2: the same with Mamba 2."""
    sizes, own = sizes_of(keys), CacheList()
    mamba2(own, Layer(keys=keys, sizes=sizes, number=0, kind=LINEAR))
    (state,) = own.groups()
    attends = 2 * sizes.heads * keys.whole("shared_head_dim")
    for kind in keys.items("layers_block_type"):
        per_token = attends if kind == "hybrid" else 0
        caches.add(per_token=per_token, state=state.state, state_fp32=state.state_fp32)


def jetmoe(caches: CacheList, keys: Keys) -> None:
    """JetMoE: keys and values for each expert that made queries."""
    width = sizes_of(keys).kv_heads * keys.whole("kv_channels")
    caches.add(per_token=2 * width * keys.whole("num_experts_per_tok", default=2), layers=layer_count(keys))


def longcat(caches: CacheList, keys: Keys) -> None:
    """LongCat-Flash (arXiv 2509.01322): two attentions a layer."""
    layer = Layer(keys=keys, sizes=sizes_of(keys), number=0, kind=FULL)
    for number in range(2 * layer_count(keys, "num_layers")):
        mla(caches, msgspec.structs.replace(layer, number=number))


def hrm(caches: CacheList, keys: Keys) -> None:
    """HRM: two stacks of layers, each used several times; every use keeps keys and values of its own."""
    caches.add(per_token=2 * sizes_of(keys).keys, layers=layer_count(keys))


def mllama(caches: CacheList, keys: Keys) -> None:
    """Llama 3.2 Vision's decoder: some layers look at the image instead of the words."""
    sizes, count, crossing = sizes_of(keys), layer_count(keys), keys.items("cross_attention_layers")
    caches.add(per_token=sizes.keys + sizes.values, layers=sum(number not in crossing for number in range(count)))


def prophetnet(caches: CacheList, keys: Keys) -> None:
    caches.add(per_token=2 * keys.whole("hidden_size"), layers=keys.whole("num_decoder_layers"))


twice_mla = partial(mla, copies=2)
