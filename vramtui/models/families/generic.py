"""A decoder that no family describes, read from the keys that most configs share: a guess, and said to be one."""

from vramtui.models.families.attention import attention
from vramtui.models.families.family import Family, Layer, Operator
from vramtui.models.families.keys import Keys
from vramtui.models.families.recurrent import (
    gated_delta,
    kimi_delta,
    mamba1,
    mamba2,
    rg_lru,
    short_conv,
)
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.tensor_list import CacheList, TensorList

GATED = ("silu", "swish", "swiglu", "geglu", "gelu_pytorch_tanh")
PLAIN_KEYS = ("n_embd", "n_layer", "ffn_dim", "dff")


def guess_family(keys: Keys) -> Family:
    """The family that the config's own keys speak for."""
    names = keys.values.keys()
    layer_norm = not any("rms" in name for name in names) and any("layer_norm" in name for name in names)
    old = layer_norm or any(name in keys.values for name in PLAIN_KEYS)
    acts = " ".join(str(keys.values.get(name, "")) for name in ("hidden_act", "hidden_activation", "activation"))
    gated = not old or any(act in acts for act in GATED)
    bias = next((name for name in ("attention_bias", "qkv_bias", "use_qkv_bias", "use_bias") if name in names), None)
    recurrent = _recurrent(keys)
    return Family(
        norm=2 if old else 1,
        gated=gated,
        bias=(bias, False) if bias else old,
        output_bias=None if bias in {None, "attention_bias", "use_bias"} else False,
        mlp_bias=old,
        qk_norm="head" if keys.flag("use_qk_norm") or keys.flag("qk_norm") or keys.flag("qk_layernorm") else "",
        tied=keys.flag("tie_word_embeddings"),
        mla=bool(keys.maybe("kv_lora_rank") and keys.maybe("qk_nope_head_dim") and keys.maybe("v_head_dim")),
        correction_bias=False,
        mixers=dict.fromkeys(("linear_attention", "conv", "hybrid_linear"), recurrent) if recurrent else {},
    )


def _recurrent(keys: Keys) -> Operator | None:
    """How layers that keep a state are built, where the config has sizes of such."""
    if keys.maybe("linear_num_key_heads"):
        return _safely(gated_delta)
    if keys.maybe("linear_num_heads") or (keys.maybe("short_conv_kernel_size") and keys.maybe("linear_head_dim")):
        return _safely(kimi_delta)
    if keys.maybe("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"):
        return _safely(mamba2)
    if keys.maybe("mamba_d_state", "state_size"):
        return _safely(mamba1)
    if keys.maybe("lru_width"):
        return _safely(rg_lru)
    return _safely(short_conv) if keys.maybe("conv_L_cache") else None


def _safely(operator: Operator) -> Operator:
    """An operator that adds attention instead where one of its sizes is missing."""

    def build(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
        try:
            operator(tensors, caches, layer)
        except DamagedError:
            attention(tensors, caches, layer)

    return build
