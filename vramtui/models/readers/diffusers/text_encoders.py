"""The text encoders of a pipeline from their configs: every tensor (transformers 5.23), and their sizes."""

import msgspec

from vramtui.core.base.file_limits import MOST_LAYERS
from vramtui.models.families.any_config import read_any
from vramtui.models.families.keys import FFN, HEADS, HIDDEN, LAYERS
from vramtui.models.readers.bounded import Damaged
from vramtui.models.readers.fields import Fields, Table
from vramtui.models.tensor_list import TensorList

# Types whose tensors beside `wo` follow the pipeline's precision (transformers, modeling_t5.py: _keep_in_fp32_modules).
IN_FP32 = ("wo",)


def read_encoder(config: Fields, named: str) -> Table:
    """One of `[[model.encoders]]` without its name and its tokens.

    Args:
        config: its config.json.
        named: its class, as the pipeline's index has it.

    Raises:
        Damaged: a key is missing or wrong.
    """
    kind = config.text("model_type", "")
    if kind in {"clip", "clip_text_model"}:
        part = config.table("text_config") if config.has("text_config") else config
        return _clip(part, projected=named.endswith("WithProjection"))
    if kind in {"t5", "mt5", "umt5"}:
        return _t5(config, every_layer=kind == "umt5")
    return _decoder(config)


def _clip(config: Fields, *, projected: bool) -> Table:
    tensors, sizes = TensorList(), _sizes(config)
    width, layers, inner = sizes["hidden_size"], sizes["num_hidden_layers"], sizes["intermediate_size"]
    tensors.add("embed_tokens", config.whole("vocab_size", 49408), width)
    tensors.add("embed_positions", config.whole("max_position_embeddings", 77), width)
    tensors.place = "layers"
    tensors.linear("qkvo", width, width, bias=True, count=4 * layers)
    tensors.linear("up", inner, width, bias=True, count=layers)
    tensors.linear("down", width, inner, bias=True, count=layers)
    tensors.norm("layer_norm", width, bias=True, count=2 * layers)
    tensors.place = "outside"
    tensors.norm("norm", width, bias=True)
    if projected:
        tensors.add("text_projection", config.whole("projection_dim", 512), width)
    return sizes | {"tensors": _tables(tensors)}


def _t5(config: Fields, *, every_layer: bool) -> Table:
    """The encoder of T5 alone; UMT5 has a table of relative positions in each block."""
    width, layers = config.whole("d_model"), config.whole("num_layers")
    heads, wide = config.whole("num_heads"), config.whole("d_ff")
    if not 0 < layers <= MOST_LAYERS:
        raise Damaged(f"has num_layers = {layers}; 1 to {MOST_LAYERS} are read")
    inner = heads * config.whole("d_kv", 64)
    gated = config.text("feed_forward_proj", "relu").startswith("gated")
    tensors = TensorList()
    tensors.add("embed_tokens", config.whole("vocab_size", 32128), width)
    tensors.place = "layers"
    tensors.add("qkv", inner, width, count=3 * layers)
    tensors.add("o", width, inner, count=layers)
    tensors.add("wi", wide, width, count=layers * (2 if gated else 1))
    tensors.add("wo", width, wide, count=layers)
    tensors.norm("layer_norm", width, count=2 * layers)
    buckets = config.whole("relative_attention_num_buckets", 32)
    tensors.add("relative", buckets, heads, count=layers if every_layer else 1)
    tensors.place = "outside"
    tensors.norm("norm", width)
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": wide,
        "gated_mlp": gated,
        "position_bias": True,
        "fp32_in_fp16": list(IN_FP32),
        "tensors": _tables(tensors),
    }


def _decoder(config: Fields) -> Table:
    """A whole language model with whatever belongs to it, such as its tower for images."""
    found = read_any(dict(config.values))
    if found.partial or found.basis != "family":
        raise Damaged("is of a text encoder that is not known to the last tensor")
    table = found.table
    return {
        "hidden_size": table["hidden_size"],
        "num_hidden_layers": table["num_hidden_layers"],
        "num_attention_heads": table["num_attention_heads"],
        "intermediate_size": table.get("intermediate_size") or 4 * table["hidden_size"],
        "gated_mlp": True,
        "keeps_states": True,
        "output_size": table["vocab_size"],
        "tensors": [msgspec.to_builtins(group) for group in found.tensors],
    }


_KEYS: dict[str, tuple[tuple[str, ...], int]] = {
    "hidden_size": (HIDDEN, 512),
    "num_hidden_layers": (LAYERS, 12),
    "num_attention_heads": (HEADS, 8),
    "intermediate_size": (FFN, 2048),
}


def _sizes(config: Fields) -> Table:
    """CLIP's sizes, which its config leaves out where they are the usual ones."""
    sizes: Table = {}
    for name, (keys, usual) in _KEYS.items():
        sizes[name] = next((config.whole(key) for key in keys if config.has(key)), usual)
    if not 0 < sizes["num_hidden_layers"] <= MOST_LAYERS:
        raise Damaged(f"has num_hidden_layers = {sizes['num_hidden_layers']}; 1 to {MOST_LAYERS} are read")
    return sizes


def _tables(tensors: TensorList) -> list[Table]:
    return [msgspec.to_builtins(group) for group in tensors.groups()]
