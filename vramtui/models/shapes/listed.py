"""Tensors of a model by the shapes that are generated from transformers, named as a `[model]` table lists them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vramtui.core.schema.models import ENCODER_TENSORS, TensorGroup
from vramtui.models.families.keys import FFN, HEADS, HIDDEN, POSITIONS, Keys, labels_of
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.known import NamedShape, shape_table
from vramtui.models.tensor_list import TensorList

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
    "tok_embeddings": "embed_tokens",
    "shared": "embed_tokens",
    "wte": "embed_tokens",
    **dict.fromkeys(
        ("relative_attention_bias", "rel_embeddings", "relative_position_bias_table", "rel_attn_embed", "rel_pos_h",
         "pe_k", "bias_u", "pos_bias_u"),
        "relative",
    ),
    "Wi": "up",
}  # fmt: skip
# Behind a type whose towers only are written by hand.
WITHOUT_WORDS = " without words"
CLASSIFIERS = {"classifier", "out_proj", "score", "logits_proj"}
# Before the output layer over words; of heads of other tasks none is called so.
LM_HEAD_DENSE = {"dense", "vocab_transform"}


def listed_shapes(values: Mapping[str, Any], usual: str) -> tuple[TensorList, bool]:
    """Every tensor of a config's model, and whether it is of the class that the config names; see `config_shapes`."""
    shapes, exact = config_shapes(values, usual)
    named = named_class(values)
    return _tensor_list(shapes, named if named and exact else "ForMaskedLM", ""), exact


def config_shapes(
    values: Mapping[str, Any], usual: str = "base", without: Sequence[str] = ()
) -> tuple[list[NamedShape], bool]:
    """The shapes of the class that a config names, and whether it is that class: of one that is not known they are
    those of the type's usual class.

    Args:
        values: the config, filled in.
        usual: the role of the class that is meant where none is named, or one that is not known.
        without: paths of parts that are left out.

    Raises:
        DamagedError: nothing of its type is known, or a key that is needed is missing.
    """
    kind, table = values.get("model_type"), shape_table()
    named = named_class(values)
    for name in (f"{kind}{WITHOUT_WORDS}", named) if without else (named,):
        if table.knows(name, kind):
            return table.tensors(name, values, without), True
    name = table.class_of(usual, kind)
    if name and (not named or named.rpartition("For")[2] == name.rpartition("For")[2]):
        return table.tensors(name, values, without), True
    name = name or table.class_of("base", kind)
    if not name:
        raise DamagedError(f"has a part of the type {str(kind)[:40]!r}, which is not known", is_sound=True)
    return table.tensors(name, values, without), not named


def words_stand_apart(kind: str) -> bool:
    """Return whether the towers of a type of model are listed without the part that reads words."""
    return shape_table().knows(f"{kind}{WITHOUT_WORDS}", kind)


def named_class(values: Mapping[str, Any]) -> str:
    """The first class that a config names; empty if it names none."""
    listed = values.get("architectures")
    name = listed[0] if isinstance(listed, list) and listed else ""
    return name if isinstance(name, str) else ""


def generated_tensors(values: Mapping[str, Any], text: str = "") -> TensorList | None:
    """Every tensor of the class that a config names; None if its shapes are not known, or a key for them is missing.

    Args:
        values: the config as decoded.
        text: the key of the part that reads words; empty if it is the config itself.
    """
    name, table = named_class(values), shape_table()
    if not table.knows(name, values.get("model_type")):
        return None
    try:
        return _tensor_list(table.tensors(name, values), "", text)
    except DamagedError:
        return None


def _tensor_list(shapes: list[NamedShape], architecture: str, text: str) -> TensorList:
    tensors = TensorList()
    is_stem = True
    for shape in shapes:
        is_tower = shape.path and text and not shape.path.startswith(text)
        tensors.place = "tower" if is_tower else "layers" if shape.repeats else "outside"
        name = shape_name(shape, architecture, stem=is_stem)
        tensors.add(name, *shape.shape, count=shape.count)
        is_stem = is_stem and len(shape.shape) < 3
    return tensors


def add_shape(tensors: TensorList, named: NamedShape, architecture: str = "") -> None:
    """The tensors of a shape, in the place where the list is."""
    tensors.add(shape_name(named, architecture, stem=False), *named.shape, count=named.count)


def shape_name(tensor: NamedShape, architecture: str = "", *, stem: bool) -> str:
    """The name of a tensor in lists: that of its module, or one that says what it is; `stem` whether it may be the
    first convolution.
    """
    if len(tensor.shape) > 3 or (len(tensor.shape) == 3 and "conv" in tensor.name):
        return STEM if stem else f"conv_{tensor.name.removeprefix('conv_')}"
    if tensor.name in CLASSIFIERS and architecture.endswith("SequenceClassification") and not tensor.repeats:
        return "class_out"
    if tensor.name in LM_HEAD_DENSE and architecture.endswith("MaskedLM") and not tensor.repeats:
        return "head_dense"
    if tensor.name == "Wo" and tensor.shape[0] != tensor.shape[-1]:
        return "down"
    return NAMES.get(tensor.name, tensor.name)


def as_encoder(groups: tuple[TensorGroup, ...]) -> tuple[TensorGroup, ...]:
    """The tensors of an encoder of text, by whose names it is known as one: its head for classes is called so."""
    if any(group.name in ENCODER_TENSORS for group in groups):
        return groups
    return tuple(
        msgspec.structs.replace(group, name="class_out") if group.name in CLASSIFIERS else group for group in groups
    )


def stream_of(keys: Keys, groups: tuple[TensorGroup, ...]) -> Keys:
    """The config of a net that has none of a decoder's sizes, with those of a stream as large as its widest stage."""
    layers = [one for one in groups if one.place == "layers"] or list(groups)
    widest = max((one.shape[0] for one in layers if len(one.shape) == 1), default=1)
    hidden = keys.maybe(*HIDDEN) or widest
    heads = keys.maybe(*HEADS, "encoder_attention_heads") or max(1, hidden // HEAD)
    depth = max((one.count for one in layers if len(one.shape) == 1), default=1)
    # Patches of an image, of 32 pixels a side if the config does not say.
    image, patch = keys.maybe("image_size") or 224, keys.maybe("patch_size") or 32
    sizes: dict[str, object] = {
        "hidden_size": hidden,
        "num_hidden_layers": min(depth, 1024),
        "num_attention_heads": heads if hidden % heads == 0 else 1,
        "intermediate_size": keys.maybe(*FFN, "encoder_ffn_dim") or 4 * hidden,
        "vocab_size": keys.maybe("vocab_size") or labels_of(keys),
        "max_position_embeddings": keys.maybe(*POSITIONS) or max(1, image // max(1, patch)) ** 2,
    }
    return keys.changed(**sizes)
