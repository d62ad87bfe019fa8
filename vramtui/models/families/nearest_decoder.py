"""The decoder whose operators are nearest to an architecture's: what comes and goes is taken from it."""

from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.stored_tensors import ENCODER_TENSORS, LayerCache, TensorGroup
from vramtui.models.families.attention import SLIDING, WINDOWS
from vramtui.models.families.decoder import kinds_of
from vramtui.models.families.family import Family, truth
from vramtui.models.families.feed_forward import has_experts, shared_width
from vramtui.models.families.keys import (
    CHOSEN,
    EXPERT_WIDTH,
    EXPERTS,
    HEAD_DIM,
    KV_HEADS,
    POSITIONS,
    Keys,
    layer_count,
    sizes_of,
)
from vramtui.models.specs.decoder import decoder_spec

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_new", "gelu_fast": "gelu_new", "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "quick_gelu": "quick_gelu", "relu": "relu", "relu2": "relu", "silu": "silu", "swish": "silu",
}  # fmt: skip
ACTS = ("hidden_act", "hidden_activation", "activation_function", "activation", "afn", "mlp_hidden_act")
LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
NORMS = {1: "rmsnorm", 2: "layernorm"}


def nearest_decoder(keys: Keys, family: Family) -> dict[str, Any]:
    """The `[model]` table of a decoder with the same sizes.

    Raises:
        DamagedError: a size is missing.
    """
    if family.prepare is not None:
        keys = family.prepare(keys)
    sizes, layers = sizes_of(keys), layer_count(keys)
    heads, kv_heads = max(1, sizes.heads), sizes.kv_heads
    fits = kv_heads and heads % kv_heads == 0
    bias = truth(keys, family.bias)
    table: dict[str, Any] = {
        "kind": "transformer",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads if fits else None,
        "head_dim": sizes.head_dim,
        "intermediate_size": sizes.ffn,
        "vocab_size": max(1, sizes.vocab),
        "max_position_embeddings": keys.maybe(*POSITIONS) or None,
        "hidden_act": _activation(keys),
        "gated_mlp": family.gated,
        "norm": "gemma_rmsnorm" if family.norm_in_fp32 else NORMS.get(family.norm, "rmsnorm"),
        "norms_per_layer": min(4, max(1, family.norms)),
        "qk_norm": family.qk_norm in {"head", "wide"} and (not family.qk_norm_if or keys.flag(family.qk_norm_if)),
        "attention_bias": bias,
        "output_bias": bias if family.output_bias is None else truth(keys, family.output_bias),
        "mlp_bias": truth(keys, family.mlp_bias),
        "lm_head_bias": truth(keys, family.head_bias),
        "tie_word_embeddings": keys.flag("tie_word_embeddings", family.tied),
        **_experts(keys, family, layers),
        **(_latent(keys) if family.mla else {}),
    }
    return {key: value for key, value in table.items() if value is not None}


def modelled_decoder(
    given: Keys, keys: Keys, family: Family, numbers: int, caches: tuple[LayerCache, ...]
) -> dict[str, Any] | None:
    """The `[model]` table of a decoder of whose family every operator is followed; None where one of this config's is
    not, or where the table does not come to its tensors and caches.

    Args:
        given: the config as its file has it.
        keys: the same with what the file leaves out.
        family: its own.
        numbers: in all of its tensors.
        caches: what its layers keep.

    Raises:
        DamagedError: a size is missing.
    """
    own = family.operators(keys) if family.operators is not None else None
    if own is None:
        return None
    table = nearest_decoder(keys, family)
    if given.maybe(*POSITIONS) is None:
        table.pop("max_position_embeddings", None)
    if given.maybe(*KV_HEADS) is None and table.get("num_key_value_heads") == table["num_attention_heads"]:
        del table["num_key_value_heads"]
    if given.maybe(*HEAD_DIM) is None and table["head_dim"] == table["hidden_size"] // table["num_attention_heads"]:
        del table["head_dim"]
    if given.maybe(*EXPERT_WIDTH) is None and table.get("moe_intermediate_size") == table["intermediate_size"]:
        del table["moe_intermediate_size"]
    if family.positions is not None:
        rows, more = family.positions
        table |= {"position": "learned", "max_position_embeddings": keys.whole(rows) + more}
    table |= _windows(keys, family) | own
    table = {key: value for key, value in table.items() if value is not None}
    try:
        spec = decoder_spec(msgspec.convert(table, TransformerModel))
    except (msgspec.ValidationError, UserError):
        return table  # what reads the table says what is wrong with it
    return table if spec.parameters() == numbers and _sorted(spec.caches()) == _sorted(caches) else None


def _windows(keys: Keys, family: Family) -> dict[str, Any]:
    """The window, and every how many layers look back all the way, where these come at equal steps."""
    kinds = kinds_of(keys, layer_count(keys), family)
    full = [number for number, kind in enumerate(kinds, 1) if kind not in SLIDING]
    if len(full) == len(kinds):
        return {}
    return {"sliding_window": keys.maybe(*WINDOWS), "sliding_window_pattern": full[0] if full else None}


def _sorted(caches: tuple[LayerCache, ...]) -> list[tuple[int, int, int]]:
    """What layers keep, in an order of its own."""
    return sorted((kind.window or 0, kind.per_token, kind.layers) for kind in caches)


def _activation(keys: Keys) -> str:
    named = next((keys.text(name) for name in ACTS if keys.text(name)), "silu")
    return ACTIVATIONS.get(named, "gelu" if "gelu" in named else "silu")


def _experts(keys: Keys, family: Family, layers: int) -> dict[str, Any]:
    routes = family.sparse or has_experts
    first = next((number for number in range(layers) if routes(keys, number)), None)
    count = keys.maybe(*EXPERTS)
    if first is None or not count:
        return {}
    width = keys.maybe(*(family.expert_width or EXPERT_WIDTH)) or sizes_of(keys).ffn
    return {
        "num_experts": count,
        "num_experts_per_tok": min(count, max(1, keys.maybe(*CHOSEN) or 2)),
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": (shared_width(keys, width) if family.shared else 0) or None,
        "first_k_dense_replace": first,
    }


def _latent(keys: Keys) -> dict[str, Any]:
    table: dict[str, Any] = {name: keys.maybe(name) for name in (*LATENT, "q_lora_rank")}
    if not all(table[name] for name in LATENT):
        return {}
    return table | {"head_dim": table["v_head_dim"], "num_key_value_heads": None}


def window_table(caches: tuple[LayerCache, ...], layers: int) -> dict[str, Any]:
    """The window that most layers slide over, and every how many look back all the way."""
    slides = [kind for kind in caches if kind.window is not None]
    if not slides:
        return {}
    window = max(slides, key=lambda kind: kind.layers).window
    full = sum(kind.layers for kind in caches if kind.window is None and kind.per_token)
    return {"sliding_window": window, "sliding_window_pattern": max(1, round(layers / full)) if full else None}


def dropouts(keys: Keys, tensors: tuple[TensorGroup, ...]) -> dict[str, Any]:
    """An encoder's, where its config says them, or as BERT's config has them; ALBERT and ModernBERT have none."""
    names = {group.name for group in tensors}
    if not names & ENCODER_TENSORS or "norm" in names or keys.text("model_type") == "albert":
        return {}
    return {
        "hidden_dropout": keys.number("hidden_dropout_prob", keys.number("dropout", 0.1)),
        "attention_dropout": keys.number("attention_probs_dropout_prob", keys.number("attention_dropout", 0.1)),
    }


def list_tables(tensors: tuple[TensorGroup, ...], caches: tuple[LayerCache, ...]) -> dict[str, Any]:
    """Tensors and caches as a `[model]` table has them."""
    return {
        "tensors": [_group(group) for group in tensors],
        "caches": [_cache(kind) for kind in caches],
    }


def _group(group: TensorGroup) -> dict[str, Any]:
    table: dict[str, Any] = {"name": group.name, "shape": list(group.shape)}
    if group.count != 1:
        table["count"] = group.count
    if group.place != "layers":
        table["place"] = group.place
    if group.bits is not None:
        table["bits"] = group.bits
    return table


def _cache(kind: LayerCache) -> dict[str, Any]:
    table: dict[str, Any] = {"layers": kind.layers}
    for name in ("per_token", "window", "state", "state_fp32"):
        if getattr(kind, name):
            table[name] = getattr(kind, name)
    return table
