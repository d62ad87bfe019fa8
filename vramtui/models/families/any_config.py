"""Any config as the `[model]` table of a decoder: exact if its family is known, else by the keys that most share."""

import re
from typing import Any

import msgspec

from vramtui.core.schema.models import ENCODER_TENSORS, LayerCache, TensorGroup
from vramtui.models.families.decoders import (
    dropouts,
    list_tables,
    modelled_decoder,
    nearest_decoder,
    read_decoder,
    window_table,
)
from vramtui.models.families.encoders import FOLLOWED, followed_encoder
from vramtui.models.families.families import FAMILIES, Family, guess_family, opt
from vramtui.models.families.keys import HEADS, HIDDEN, LAYERS, TEXT_PARTS, VOCABULARY, Keys, head_of, layer_count
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.full_config import filled_in, text_type
from vramtui.models.shapes.known import shape_table
from vramtui.models.shapes.listed import as_encoder, generated_tensors, named_class, stream_of, words_stand_apart
from vramtui.models.shapes.nets import PLAIN, is_net, read_net, twin_of
from vramtui.models.shapes.texts import TEXTS, read_text, text_caches
from vramtui.models.shapes.towers import add_towers, joins
from vramtui.models.tensor_list import CacheList, TensorList, numbers_in

# Whose words are read by a translator with its encoder, or by layers that are no part of their own.
OWN_TEXT = {"florence2", "idefics", "phi4_multimodal", "voxtral_realtime"}
# Whose words are read by another model than the type of its text says.
OTHER_TEXT = {"idefics": "llama", "phi4_multimodal": "phi3"}

# Of types whose tensors are read by their generated shapes: the family whose operators are followed.
OF_TEXTS = {"opt": msgspec.structs.replace(PLAIN, operators=opt)}
# Ends of the classes whose output layer is over words, as the operators that are followed have it.
OVER_WORDS = ("ForCausalLM", "LMHeadModel")

# An encoder of images and a decoder: all their tensors together are no stream of either.
TWO_MODELS = {"vision-encoder-decoder"}
ENCODER_LAYERS = ("encoder_layers", "speech_encoder_layers")

# Architectures without the output layer over words that a family has.
OTHER_HEADS = re.compile(
    r"Classification|QuestionAnswering|MultipleChoice|PreTraining|Reward|Retrieval|(?<!LMHead)Model$"
)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The model that a config describes.

    Attributes:
        table: a `[model]` table.
        basis: `family` where its tensors and caches are exact, else `generic`.
        tensors: every tensor.
        caches: what its layers keep.
        partial: whether it is only the part that reads words, of a model of several.
        counted: whether every tensor is written down all the same where it is `generic`.
        architecture: its class, where its type is one of encoders whose operators are followed.
    """

    table: dict[str, Any]
    basis: str
    tensors: tuple[TensorGroup, ...] = ()
    caches: tuple[LayerCache, ...] = ()
    partial: bool = False
    architecture: str = ""
    counted: bool = False


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


def read_any(values: dict[str, object], *, is_listed: bool = False) -> Found:
    """The tensors and caches of any config, and the decoder that it is, or is nearest to.

    What no family describes whole has its tensors from the generated shapes, where those have its class.

    Args:
        values: as decoded.
        is_listed: whether the table is to list every tensor also where its sizes say them all.

    Raises:
        DamagedError: it has not even a width and a number of layers, or not the sizes of a family that has to say them.
    """
    if not values.get("model_type"):
        # The type of the class that it names, or of that class without a head, if its operators are followed.
        name, table = named_class(values), shape_table()
        kind = table.type_of(name) or table.type_of(f"{name.partition('For')[0]}Model")
        if _is_followed(kind) or kind in FOLLOWED:
            values = values | {"model_type": kind}
    kind = str(values.get("model_type"))
    encoder = None if is_listed or kind in FAMILIES or joins(kind) else followed_encoder(values)
    if encoder is not None:
        return Found(table=encoder.table, basis="shapes", architecture=encoder.architecture, counted=True)
    if _is_followed(kind):
        for names in (HIDDEN, LAYERS, HEADS, VOCABULARY):  # without these it is not this model
            Keys(values).whole(*names)
    try:
        model = _by_family(values, is_listed=is_listed)
    except DamagedError:
        tensors = generated_tensors(values)
        if tensors is None:
            raise
        keys = stream_of(Keys(values), tensors.groups())
        net = _result(keys, PLAIN, "generic", tensors, CacheList(), partial=False)
        return msgspec.structs.replace(net, counted=True)
    if model.basis != "generic" or (model.counted and not model.partial):
        return model
    tensors = generated_tensors(values, (next((name for name in TEXT_PARTS if isinstance(values.get(name), dict)), "")))
    if tensors is None or values.get("model_type") in TWO_MODELS:
        return model
    groups = tensors.groups()
    if any(group.name in ENCODER_TENSORS for group in model.tensors):
        groups = as_encoder(groups)
    listed = model.table | {"parameters": numbers_in(groups)} | list_tables(groups, model.caches)
    return msgspec.structs.replace(model, table=listed, tensors=groups, partial=False, counted=True)


def _is_followed(kind: str) -> bool:
    family = FAMILIES.get(kind, OF_TEXTS.get(kind))
    return family is not None and family.operators is not None


def _by_family(values: dict[str, object], *, is_listed: bool) -> Found:
    """Read a config by its family."""
    kind = values.get("model_type")
    full = filled_in(values, kind, every_part=is_net(kind)) if isinstance(kind, str) else values
    keys = _with_thinkers_parts(Keys(full))
    if joins(keys.text("model_type")):
        outer = keys.values if "thinker_config" in values else values
        return _of_parts(values, keys, full, outer.get("tie_word_embeddings"))
    if is_net(keys.text("model_type")):
        net = read_net(keys)
        basis = "family" if net.exact and not net.staged else "generic"
        model = _result(net.keys, PLAIN, basis, net.tensors, net.caches, partial=False)
        model = msgspec.structs.replace(model, counted=net.exact)
        twin = twin_of(net, numbers_in(model.tensors)) if net.exact else None
        return model if twin is None else msgspec.structs.replace(model, table=twin, basis="shapes")
    kind = keys.text("model_type")
    if kind in TEXTS:
        tensors, caches, exact = read_text(keys)
        model = _result(keys, PLAIN, "family" if exact else "generic", tensors, caches, partial=False)
        return _modelled(Keys(values), keys, OF_TEXTS.get(kind), model, is_listed=is_listed)
    family = FAMILIES.get(kind)
    if family is not None:
        named = " ".join(map(str, keys.items("architectures")))
        exact = "ConditionalGeneration" not in named and not OTHER_HEADS.search(named)
        exact = exact or bool(head_of(keys) and family.keeps is None)
        # A config of a family that is followed, with operators of its own (Falcon's ALiBi), is not like its family's.
        exact = exact and (family.operators is None or family.operators(keys) is not None)
        read = read_decoder(Keys(values), keys, family)
        model = _result(keys, family, "family" if exact else "generic", *read, partial=False)
        return _modelled(Keys(values), keys, family, model, is_listed=is_listed)
    part = text_part(keys)
    if part.text("model_type") in TEXTS:
        tensors, caches, _ = read_text(part)
        return _result(part, PLAIN, "generic", tensors, caches, partial=True)
    family = FAMILIES.get(part.text("model_type")) or guess_family(part)
    partial = part.inside != keys.inside or (
        keys.has("decoder_layers") and any(keys.has(name) for name in ENCODER_LAYERS)
    )
    return _result(part, family, "generic", *read_decoder(part, part, family), partial=partial)


def _modelled(given: Keys, keys: Keys, family: Family | None, reading: Found, *, is_listed: bool) -> Found:
    """Drop the lists where the family's operators are followed and its sizes say every tensor and cache."""
    named = named_class(keys.values)
    if family is None or is_listed or (named and not named.endswith(OVER_WORDS)):
        return reading
    table = modelled_decoder(given, keys, family, numbers_in(reading.tensors), reading.caches)
    if table is None:
        return reading
    return msgspec.structs.replace(reading, table=table, basis="shapes", counted=True)


def _with_thinkers_parts(keys: Keys) -> Keys:
    """Models that speak as well keep the one that reads, hears and sees in a table of its own: its parts are theirs."""
    thinker = keys.values.get("thinker_config")
    if not isinstance(thinker, dict) or not joins(keys.text("model_type")):
        return keys
    spoken = ("talker_config", "token2wav_config", "code2wav_config")
    silent = dict.fromkeys(spoken) if not keys.flag("enable_audio_output", default=True) else {}
    own = {key: value for key, value in keys.values.items() if key != "thinker_config"}
    return Keys({**thinker, **own, **silent})


def _of_parts(values: dict[str, object], keys: Keys, full: dict[str, Any], tied: object) -> Found:
    """A model of several parts whose towers and what joins them are counted.

    Args:
        values: its config as the file has it.
        keys: the same, filled in, with the parts of a thinker at its top.
        full: the same as its class has it.
        tied: whether the file says at its top that the output layer is the embedding. Where it does not, the part that
            reads words says it, as it did for transformers 4, which wrote these files.
    """
    name = next((name for name in TEXT_PARTS if isinstance(keys.values.get(name), dict)), "")
    part = keys.table(name) if name else keys.changed(model_type=text_type(keys.text("model_type")))
    given = _with_thinkers_parts(Keys(values))
    given = (given.table(name) if name else given).changed(model_type=part.values.get("model_type"))
    if isinstance(tied, bool):
        part = part.changed(tie_word_embeddings=tied)
    kind = OTHER_TEXT.get(keys.text("model_type"), part.text("model_type"))
    family = FAMILIES.get(kind)
    nearest = family or (PLAIN if kind in TEXTS else guess_family(part))
    if kind in TEXTS:
        tensors, caches = TensorList(), text_caches(part)
        if words_stand_apart(keys.text("model_type")):
            tensors, _, _ = read_text(part)
    else:
        tensors, caches = read_decoder(
            given.changed(tie_word_embeddings=part.flag("tie_word_embeddings", nearest.tied)), part, nearest
        )
        tensors = TensorList() if keys.text("model_type") in OWN_TEXT else tensors
    joined = add_towers(tensors, keys, full)
    named = " ".join(map(str, keys.items("architectures")))
    exact = (family is not None or kind in TEXTS) and joined.complete and not OTHER_HEADS.search(named)
    basis = "family" if exact else "generic"
    model = _result(part, nearest, basis, tensors, caches, partial=not joined.complete)
    towers = {"image_tokens": joined.images, "tower": joined.tower, "audio_tower": joined.audio_tower}
    seen = {name: table for name, table in towers.items() if table is not None}
    return msgspec.structs.replace(model, table=model.table | seen)


def _result(keys: Keys, family: Family, basis: str, tensors: TensorList, caches: CacheList, *, partial: bool) -> Found:
    groups, cache_groups = tensors.groups(), caches.groups()
    table = nearest_decoder(keys, family) | window_table(cache_groups, layer_count(keys))
    table = {key: value for key, value in table.items() if value is not None} | dropouts(keys, groups)
    table |= {"parameters": numbers_in(groups), "basis": basis} | list_tables(groups, cache_groups)
    return Found(table=table, basis=basis, tensors=groups, caches=cache_groups, partial=partial)
