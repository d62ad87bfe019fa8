"""MLPs: dense, and made of experts."""

from vramtui.models.families.family import Layer, truth
from vramtui.models.families.keys import (
    DENSE_FIRST,
    EXPERT_WIDTH,
    EXPERTS,
    FFN,
    SHARED,
    SHARED_WIDTH,
    Keys,
)
from vramtui.models.tensor_list import CacheList, TensorList

# The width of a narrower stream that experts work on.
EXPERT_STREAM = ("moe_latent_size", "routed_expert_hidden_size")


def mlp(tensors: TensorList, _caches: CacheList, layer: Layer) -> None:
    """The MLP of a layer, of its own width where each has one."""
    dense(tensors, layer, _width(layer))


def _width(layer: Layer) -> int:
    for name in FFN:
        listed = layer.keys.items(name)
        if layer.number < len(listed) and isinstance(listed[layer.number], int):
            return int(listed[layer.number])
    return layer.keys.maybe("dense_intermediate_size", "intermediate_size_mlp") or layer.sizes.ffn


def dense(tensors: TensorList, layer: Layer, width: int, prefix: str = "", *, gated: bool | None = None) -> None:
    """Up and down, and a gate where the family has one."""
    hidden, bias = layer.sizes.hidden, truth(layer.keys, layer.family.mlp_bias)
    if layer.family.gated if gated is None else gated:
        tensors.linear(f"{prefix}gate_proj", width, hidden, bias=bias)
    tensors.linear(f"{prefix}up_proj", width, hidden, bias=bias)
    tensors.linear(f"{prefix}down_proj", hidden, width, bias=bias)


def experts(tensors: TensorList, layer: Layer) -> None:
    """Router, the experts of a layer in two tensors, and the experts for all tokens."""
    keys, family, hidden = layer.keys, layer.family, layer.sizes.hidden
    count = keys.whole(*EXPERTS)
    width = keys.maybe(*(family.expert_width or EXPERT_WIDTH)) or layer.sizes.ffn
    tensors.linear("router", count, hidden, bias=truth(keys, family.router_bias))
    if family.correction_bias:
        tensors.add("router", count)
    inner = 2 * width if family.gated else width
    stream = keys.maybe(*EXPERT_STREAM) or hidden
    tensors.add("experts_gate_up_proj", count, inner, stream)
    tensors.add("experts_down_proj", count, stream, width)
    if stream != hidden:
        tensors.linear("latent_down_proj", stream, hidden)
        tensors.linear("latent_up_proj", hidden, stream)
    if family.expert_bias:
        tensors.add("experts_gate_up_proj", count, inner)
        tensors.add("experts_down_proj", count, hidden)
    shared = shared_width(keys, width) if family.shared else 0
    if shared:
        dense(tensors, layer, shared, "shared_")
        if family.shared_gate:
            tensors.linear("shared_gate", 1, hidden)


def shared_width(keys: Keys, width: int) -> int:
    """Width of the experts for all tokens together; 0 where there are none."""
    own, count = keys.maybe(*SHARED_WIDTH), keys.maybe(*SHARED)
    if own is not None:
        return own if count is None else own * count
    return (count or 0) * width


def has_experts(keys: Keys, number: int) -> bool:
    """Whether a layer (from 0) has experts, by the keys that most families use."""
    if not keys.maybe(*EXPERTS):
        return False
    for name in ("mlp_layer_types", "moe_layer_freq"):
        listed = keys.items(name)
        if number < len(listed):
            return listed[number] not in ("dense", "mlp", 0)
    last = keys.whole("moe_layer_end_index", default=number)
    among = keys.whole(*DENSE_FIRST, default=0) <= number <= last
    if not among or number in keys.items("mlp_only_layers"):
        return False
    if keys.items("moe_layers"):
        return number in keys.items("moe_layers")
    if keys.maybe("expert_layer_period"):
        return number % keys.whole("expert_layer_period") == keys.whole("expert_layer_offset", default=0)
    step = keys.maybe("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_freq")
    return not step or (number + 1) % step == 0
