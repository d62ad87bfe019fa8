"""Tensors of a model by the shapes that are generated from transformers, for what no family describes whole."""

from collections.abc import Mapping
from typing import Any

import msgspec

from vramtui.core.schema.stored_tensors import ENCODER_TENSORS, Place, TensorGroup
from vramtui.models.families.keys import FFN, HEADS, HIDDEN, POSITIONS, Keys, labels_of
from vramtui.models.families.tensor_list import TensorList
from vramtui.models.readers.bounded import Damaged
from vramtui.models.shapes.known import NamedShape, shape_table

# Of a head where a config says no number of them.
HEAD = 64
# The first convolution, by which a model for images or sound is known.
STEM = "conv_stem"
# Names of transformers' modules as the lists of families have them.
NAMES = {
    "token_type_embeddings": "embed_token_types",
    "position_embeddings": "embed_positions",
    "wpe": "embed_positions",
    "word_embeddings": "embed_tokens",
    "shared": "embed_tokens",
    "wte": "embed_tokens",
}
CLASSIFIERS = {"classifier", "out_proj", "score", "logits_proj"}


def generated_tensors(values: Mapping[str, Any], text: str = "") -> TensorList | None:
    """Every tensor of the class that a config names; None where its shapes are not known, or a key for them is missing.

    Args:
        values: the config as decoded.
        text: the key of the part that reads words; empty where it is the config itself.
    """
    listed = values.get("architectures")
    name = listed[0] if isinstance(listed, list) and listed else ""
    table = shape_table()
    if not isinstance(name, str) or not table.knows(name, values.get("model_type")):
        return None
    try:
        found = table.tensors(name, values)
    except Damaged:
        return None
    tensors = TensorList()
    is_stem = True
    for one in found:
        tensors.place = _place(one, text)
        tensors.add(_name(one, stem=is_stem), *one.shape, count=one.count)
        is_stem = is_stem and len(one.shape) < 3
    return tensors


def _place(tensor: NamedShape, text: str) -> Place:
    if tensor.path and text and not tensor.path.startswith(text):
        return "tower"
    return "layers" if tensor.repeats else "outside"


def _name(tensor: NamedShape, *, stem: bool) -> str:
    if len(tensor.shape) > 3 or (len(tensor.shape) == 3 and "conv" in tensor.name):
        return STEM if stem else f"conv_{tensor.name.removeprefix('conv_')}"
    return NAMES.get(tensor.name, tensor.name)


def as_encoder(groups: tuple[TensorGroup, ...]) -> tuple[TensorGroup, ...]:
    """The tensors of an encoder of text, by whose names it is known as one: its head for classes is called so."""
    if any(group.name in ENCODER_TENSORS for group in groups):
        return groups
    return tuple(
        msgspec.structs.replace(group, name="class_out") if group.name in CLASSIFIERS else group for group in groups
    )


def stream_of(keys: Keys, groups: tuple[TensorGroup, ...]) -> Keys:
    """The config of a net that has none of a decoder's sizes, with those of a stream as large as its widest stage.

    Args:
        keys: its config.
        groups: every tensor of it.
    """
    layers = [one for one in groups if one.place == "layers"] or list(groups)
    widest = max((one.shape[0] for one in layers if len(one.shape) == 1), default=1)
    hidden = keys.maybe(*HIDDEN) or widest
    heads = keys.maybe(*HEADS, "encoder_attention_heads") or max(1, hidden // HEAD)
    depth = max((one.count for one in layers if len(one.shape) == 1), default=1)
    sizes: dict[str, object] = {
        "hidden_size": hidden,
        "num_hidden_layers": min(depth, 1024),
        "num_attention_heads": heads if hidden % heads == 0 else 1,
        "intermediate_size": keys.maybe(*FFN, "encoder_ffn_dim") or 4 * hidden,
        "vocab_size": keys.maybe("vocab_size") or labels_of(keys),
        "max_position_embeddings": keys.maybe(*POSITIONS) or _patches(keys),
    }
    return keys.changed(**sizes)


def _patches(keys: Keys) -> int:
    """Patches of an image, of 32 pixels a side where the config does not say."""
    image, patch = keys.maybe("image_size") or 224, keys.maybe("patch_size") or 32
    return max(1, image // max(1, patch)) ** 2
