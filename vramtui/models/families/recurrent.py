"""Layers that keep a state instead of keys and values: Mamba, gated delta rule, lightning attention, RG-LRU, short
convolutions.

States as in transformers 5.23: convolutions' inputs in the model's type, recurrent states in fp32 where its code says
so (cache_utils.py, LinearAttentionLayer).
"""

from vramtui.models.families.family import Layer
from vramtui.models.families.keys import Keys
from vramtui.models.tensor_list import CacheList, TensorList


def mamba1(tensors: TensorList, caches: CacheList, layer: Layer, *, normed: bool = False) -> None:
    """Mamba (Gu and Dao 2023, arXiv 2312.00752); Jamba norms what is selected."""
    keys, hidden = layer.keys, layer.sizes.hidden
    jamba = keys.maybe("mamba_d_state") is not None
    inner = keys.whole("mamba_expand", "expand", default=2) * hidden
    if not jamba:
        inner = keys.maybe("intermediate_size") or inner
    state = keys.whole("mamba_d_state", "state_size", default=16)
    kernel = keys.whole("mamba_d_conv", "conv_kernel", default=4)
    rank = keys.maybe("mamba_dt_rank", "time_step_rank") or -(-hidden // 16)
    bias = keys.flag("mamba_proj_bias") if jamba else keys.flag("use_bias")
    tensors.add("A_log", inner, state)
    tensors.add("D", inner)
    conv_bias = keys.flag("mamba_conv_bias", default=True) and keys.flag("use_conv_bias", default=True)
    tensors.conv("conv1d", inner, 1, kernel, bias=conv_bias)
    tensors.linear("in_proj", 2 * inner, hidden, bias=bias)
    tensors.linear("x_proj", rank + 2 * state, inner)
    tensors.linear("dt_proj", inner, rank, bias=True)
    tensors.linear("out_proj", hidden, inner, bias=bias)
    if normed:
        for width in (rank, state, state):
            tensors.norm("mamba_norm", width)
    caches.add(state=inner * kernel, state_fp32=inner * state)


def mamba1_normed(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """Add Jamba's Mamba, which has norms of its own."""
    mamba1(tensors, caches, layer, normed=True)


def mamba2(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """Mamba 2 (Dao and Gu 2024, arXiv 2405.21060)."""
    keys, hidden = layer.keys, layer.sizes.hidden
    heads = keys.whole("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    width = keys.whole("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim")
    inner = keys.maybe("mamba_d_ssm") or heads * width
    groups = keys.whole("mamba_n_groups", "mamba_ngroups", "n_groups", default=1)
    state = keys.whole("mamba_d_state", "ssm_state_size", "state_size")
    kernel = keys.whole("mamba_d_conv", "conv_kernel", default=4)
    bias = keys.flag("mamba_proj_bias") or keys.flag("use_bias")
    conv_bias = keys.flag("mamba_conv_bias", default=True) and keys.flag("use_conv_bias", default=True)
    mixed = inner + 2 * groups * state
    for name in ("dt_bias", "A_log", "D"):
        tensors.add(name, heads)
    tensors.conv("conv1d", mixed, 1, kernel, bias=conv_bias)
    tensors.linear("in_proj", inner + mixed + heads, hidden, bias=bias)
    if keys.flag("mamba_rms_norm", default=True):
        tensors.norm("mamba_norm", inner)
    tensors.linear("out_proj", hidden, inner, bias=bias)
    caches.add(state=mixed * kernel, state_fp32=heads * width * state)


class DeltaSizes:
    """LayerSizes of a gated delta rule's keys and values."""

    def __init__(self, keys: Keys) -> None:
        self.key_heads = keys.whole("linear_num_key_heads", "linear_num_heads", "num_heads")
        self.value_heads = keys.maybe("linear_num_value_heads") or self.key_heads
        self.key_dim = keys.whole("linear_key_head_dim", "linear_head_dim", "head_dim")
        self.value_dim = keys.maybe("linear_value_head_dim") or self.key_dim
        self.keys, self.values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        self.mixed = 2 * self.keys + self.values
        self.kernel = keys.whole("linear_conv_kernel_dim", "short_conv_kernel_size", default=4)


def gated_delta(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """The gated delta rule of Qwen3-Next and Qwen 3.5 (Yang et al. 2024, arXiv 2412.06464)."""
    it, hidden = DeltaSizes(layer.keys), layer.sizes.hidden
    tensors.add("dt_bias", it.value_heads)
    tensors.add("A_log", it.value_heads)
    tensors.conv("conv1d", it.mixed, 1, it.kernel)
    tensors.linear("in_proj_qkvz", it.mixed + it.values, hidden)
    tensors.linear("in_proj_ba", 2 * it.value_heads, hidden)
    tensors.norm("delta_norm", it.value_dim)
    tensors.linear("out_proj", hidden, it.values)
    caches.add(state=it.mixed * it.kernel, state_fp32=it.value_heads * it.key_dim * it.value_dim)


def kimi_delta(tensors: TensorList, caches: CacheList, layer: Layer, *, low_rank: bool = True) -> None:
    """Kimi Linear's delta attention (arXiv 2510.26692): a gate for each channel."""
    it, hidden = DeltaSizes(layer.keys), layer.sizes.hidden
    for name, width in (("q_proj", it.keys), ("k_proj", it.keys), ("v_proj", it.values)):
        tensors.linear(name, width, hidden)
    tensors.conv("conv1d", it.mixed, 1, it.kernel)
    tensors.add("A_log", it.key_heads)
    tensors.add("dt_bias", it.keys)
    for name, width in (("f", it.keys), ("g", it.values)):
        if low_rank:
            tensors.linear(f"{name}_a_proj", it.key_dim, hidden)
            tensors.linear(f"{name}_b_proj", width, it.key_dim)
        else:
            tensors.linear(f"{name}_proj", width, hidden)
    tensors.linear("b_proj", it.key_heads, hidden)
    tensors.norm("delta_norm", it.value_dim)
    tensors.linear("o_proj", hidden, it.values)
    caches.add(state=it.mixed * it.kernel, state_fp32=it.value_heads * it.key_dim * it.value_dim)


def bailing_delta(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """Ling's: the same with gates of full rank."""
    kimi_delta(tensors, caches, layer, low_rank=False)


def olmo_delta(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """OLMo Hybrid's gated delta rule: queries, keys, values and gate by projections of their own."""
    it, hidden = DeltaSizes(layer.keys), layer.sizes.hidden
    for name in ("A_log", "dt_bias"):
        tensors.add(name, it.value_heads)
    for name, width in (("q_proj", it.keys), ("k_proj", it.keys), ("v_proj", it.values), ("g_proj", it.values)):
        tensors.linear(name, width, hidden)
    for name in ("a_proj", "b_proj"):
        tensors.linear(name, it.value_heads, hidden)
    tensors.linear("o_proj", hidden, it.values)
    tensors.conv("conv1d", it.mixed, 1, it.kernel)
    tensors.norm("delta_norm", it.value_dim)
    caches.add(state=it.mixed * it.kernel, state_fp32=it.value_heads * it.key_dim * it.value_dim)


def lightning(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """MiniMax's lightning attention (arXiv 2501.08313)."""
    sizes = layer.sizes
    tensors.norm("linear_norm", sizes.queries)
    tensors.linear("qkv_proj", 3 * sizes.queries, sizes.hidden)
    tensors.linear("out_proj", sizes.hidden, sizes.queries)
    tensors.linear("output_gate", sizes.queries, sizes.hidden)
    caches.add(state=sizes.heads * sizes.head_dim * sizes.head_dim)


def rg_lru(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """RecurrentGemma's recurrent block (De et al. 2024, arXiv 2402.19427)."""
    keys, hidden, heads = layer.keys, layer.sizes.hidden, layer.sizes.heads
    width, kernel = keys.maybe("lru_width") or hidden, keys.whole("conv1d_width", default=4)
    tensors.linear("linear_y", width, hidden, bias=True)
    tensors.linear("linear_x", width, hidden, bias=True)
    tensors.linear("linear_out", hidden, width, bias=True)
    tensors.conv("conv1d", width, 1, kernel, bias=True)
    tensors.add("recurrent_param", width)
    for _ in ("input", "recurrent"):
        tensors.add("rg_lru_gate", heads, width // heads, width // heads)
        tensors.add("rg_lru_gate", heads, width // heads)
    caches.add(state=width * (kernel - 1), state_fp32=width)


def short_conv(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """LFM2's gated short convolution."""
    keys, hidden = layer.keys, layer.sizes.hidden
    kernel, bias = keys.whole("conv_L_cache", default=3), keys.flag("conv_bias")
    tensors.conv("conv1d", hidden, 1, kernel, bias=bias)
    tensors.linear("in_proj", 3 * hidden, hidden, bias=bias)
    tensors.linear("out_proj", hidden, hidden, bias=bias)
    caches.add(state=hidden * kernel)
