"""Any config as the `[model]` table of a decoder: exact where its family is known, else from the keys most share."""

from typing import Any

import msgspec

from vramtui.core.schema.stored_tensors import LayerCache, TensorGroup
from vramtui.presets.model_files.architectures.decoder import read_decoder
from vramtui.presets.model_files.architectures.exotic import EXOTIC
from vramtui.presets.model_files.architectures.families import FAMILIES
from vramtui.presets.model_files.architectures.family import Family
from vramtui.presets.model_files.architectures.generic import guess_family
from vramtui.presets.model_files.architectures.keys import Keys, layer_count
from vramtui.presets.model_files.architectures.nearest_decoder import listed, nearest_decoder, window_table
from vramtui.presets.model_files.architectures.older import OLDER
from vramtui.presets.model_files.architectures.tensor_list import numbers_in

KNOWN: dict[str, Family] = {**FAMILIES, **OLDER, **EXOTIC}
# Where models of several parts keep the one that reads words.
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder", "language_model")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a config comes to.

    Attributes:
        table: a `[model]` table.
        basis: `family` where its tensors and caches are exact, else `generic`.
        tensors: every tensor.
        caches: what its layers keep.
        partial: whether it is only the part that reads words, of a model of several.
    """

    table: dict[str, Any]
    basis: str
    tensors: tuple[TensorGroup, ...]
    caches: tuple[LayerCache, ...]
    partial: bool


def text_part(keys: Keys) -> Keys:
    """The table of the part that reads words: the config itself in most."""
    for name in TEXT_PARTS:
        if keys.has(name) and isinstance(keys.values[name], dict):
            inner = keys.table(name)
            shared = {
                key: keys.values[key]
                for key in ("tie_word_embeddings", "vocab_size")
                if key in keys.values and key not in inner.values
            }
            return text_part(inner.changed(**shared))
    return keys


def read_any(values: dict[str, object]) -> Found:
    """The tensors, caches and nearest decoder of any config.

    Raises:
        Damaged: it has not even a width and a number of layers.
    """
    keys = Keys(values)
    family = KNOWN.get(keys.text("model_type"))
    named = " ".join(map(str, keys.items("architectures")))
    if family is not None:
        return _found(keys, family, "generic" if "ConditionalGeneration" in named else "family", partial=False)
    part = text_part(keys)
    family = KNOWN.get(part.text("model_type")) or guess_family(part)
    return _found(part, family, "generic", partial=part.inside != keys.inside)


def _found(keys: Keys, family: Family, basis: str, *, partial: bool) -> Found:
    tensors, caches = read_decoder(keys, family)
    groups, kept = tensors.groups(), caches.groups()
    table = nearest_decoder(keys, family) | window_table(kept, layer_count(keys))
    table = {key: value for key, value in table.items() if value is not None}
    table |= {"parameters": numbers_in(groups), "basis": basis} | listed(groups, kept)
    return Found(table=table, basis=basis, tensors=groups, caches=kept, partial=partial)
