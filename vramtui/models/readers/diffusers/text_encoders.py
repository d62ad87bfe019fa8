"""The text encoders of a pipeline from their configs: every tensor by its generated shapes, and their sizes."""

import msgspec

from vramtui.models.families.any_config import read_any
from vramtui.models.families.keys import Fields, Keys, Table, layer_count, sizes_of
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.full_config import filled_in
from vramtui.models.shapes.listed import listed_shapes

# Types whose tensors beside `wo` follow the pipeline's precision (transformers, modeling_t5.py: _keep_in_fp32_modules).
IN_FP32 = ("wo",)
# T5 and its kin, by type.
T5 = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}


def read_encoder(config: Fields, named: str) -> Table:
    """One of `[[model.encoders]]` without its name and its tokens.

    Args:
        config: its config.json.
        named: its class, as the pipeline's index has it.

    Raises:
        DamagedError: a key is missing or wrong.
    """
    kind = config.text("model_type", "")
    if kind in {"clip", "clip_text_model"}:
        part = config.table("text_config") if config.has("text_config") else config
        projected = named.endswith("WithProjection")
        return _encoder(part, "clip_text_model", f"CLIPTextModel{'WithProjection' if projected else ''}")
    if kind in T5:
        encoder = _encoder(config, kind, T5[kind])
        gated = any(group["name"] == "wi_1" for group in encoder["tensors"])
        return encoder | {"gated_mlp": gated, "position_bias": True, "fp32_in_fp16": list(IN_FP32)}
    return _decoder(config)


def _encoder(config: Fields, kind: str, architecture: str) -> Table:
    values = filled_in(dict(config.values), kind)
    keys = Keys(values)
    sizes = sizes_of(keys)
    tensors, _exact = listed_shapes(values | {"architectures": [architecture]}, "base")
    return {
        "hidden_size": sizes.hidden,
        "num_hidden_layers": layer_count(keys),
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.ffn,
        "tensors": [msgspec.to_builtins(group) for group in tensors.groups()],
    }


def _decoder(config: Fields) -> Table:
    """A whole language model with whatever belongs to it, such as its tower for images."""
    model = read_any(dict(config.values))
    if model.partial or model.basis != "family":
        raise DamagedError("is of a text encoder that is not known to the last tensor")
    table = model.table
    return {
        "hidden_size": table["hidden_size"],
        "num_hidden_layers": table["num_hidden_layers"],
        "num_attention_heads": table["num_attention_heads"],
        "intermediate_size": table.get("intermediate_size") or 4 * table["hidden_size"],
        "gated_mlp": True,
        "keeps_states": True,
        "output_size": table["vocab_size"],
        "tensors": [msgspec.to_builtins(group) for group in model.tensors],
    }
