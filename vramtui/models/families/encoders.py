"""Encoders and encoder-decoders whose every operator is followed: what a `[model]` table says besides sizes.

Their tensors are their generated shapes', and so are the sizes that a file leaves out; a table whose own tensors come
to another number stands for nothing. Each function adds the keys of a type, with the defaults of transformers 5.23
where a config says nothing; None if this very config or its class has operators that are not followed.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.schema.models import EncoderDecoderModel, EncoderModel
from vramtui.models.families.keys import Keys, Table, activation, dropout_of, labels_of, layer_count, sizes_of

# A net that is known by its name has no config to fill in, and no tensors to compare with.
filled_in = late("vramtui.models.shapes.known:filled_in")
generated_tensors = late("vramtui.models.shapes.nets:generated_tensors")
named_class = late("vramtui.models.shapes.nets:named_class")
encoder_spec = late("vramtui.models.specs.nets:encoder_spec")
encoder_decoder_spec = late("vramtui.models.specs.nets:encoder_decoder_spec")
numbers_in = late("vramtui.models.tensor_list:numbers_in")

# The head of each class of BERT's, and whether a layer over the first token stands before it. Where every token has a
# label, or an answer starts and ends, only the first token's numbers are followed.
BERT_HEADS = {
    "Model": ("none", True),
    "ForMaskedLM": ("mlm", False),
    "ForSequenceClassification": ("classes", True),
    "ForTokenClassification": ("classes", False),
    "ForQuestionAnswering": ("classes", False),
}
BERT_CLASS = re.compile(rf"(?:Bert|Roberta|XLMRoberta)({'|'.join(BERT_HEADS)})")
VIT_HEADS = {"ViTModel": ("none", True), "ViTForImageClassification": ("classes", False)}
IMAGE = ("image_size", "patch_size", "num_channels")
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def _encoder(keys: Keys, **more: object) -> Table:
    sizes = sizes_of(keys)
    return {
        "kind": "encoder",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": layer_count(keys),
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.ffn,
        "hidden_act": activation(keys.text("hidden_act")),
        **more,
    }


def _wholes(keys: Keys, *names: str) -> Table:
    return {name: keys.whole(name) for name in names}


def bert(keys: Keys, architecture: str) -> Table | None:
    if (match := BERT_CLASS.fullmatch(architecture)) is None:
        return None
    head, pooler = BERT_HEADS[match[1]]
    more = _wholes(keys, "vocab_size", "type_vocab_size", "max_position_embeddings") | dropout_of(keys, *DROPOUTS, 0.1)
    return _encoder(keys, **more, num_labels=labels_of(keys), head=head, pooler=pooler)


def vit(keys: Keys, architecture: str) -> Table | None:
    """A vision transformer: norms before attention and MLP, and after the last block."""
    if architecture not in VIT_HEADS:
        return None
    head, pooler = VIT_HEADS[architecture]
    more = _wholes(keys, *IMAGE) | dropout_of(keys, *DROPOUTS, 0.0)
    norms = {"norm_first": True, "norm_before": False, "norm_after": True}
    return _encoder(keys, **more, **norms, num_labels=labels_of(keys), head=head, pooler=pooler)


def clip(keys: Keys, architecture: str) -> Table | None:
    """CLIP's towers: the text's is causal, the vision's has a norm before the first block, and patches without bias."""
    if keys.maybe("patch_size"):
        more: Table = {"norm_before": True, "patch_bias": False, **_wholes(keys, *IMAGE)}
    else:
        more = {"norm_before": False, "causal": True, **_wholes(keys, "vocab_size", "max_position_embeddings")}
    projected = architecture.endswith("WithProjection")
    return _encoder(keys, **more, norm_first=True, norm_after=True) | {
        "attention_dropout": keys.number("attention_dropout", 0.0),
        "projection_dim": keys.whole("projection_dim") if projected else None,
    }


def t5(keys: Keys, architecture: str) -> Table | None:
    """T5, with Flan's gated MLP where `feed_forward_proj` says so."""
    if not architecture.endswith("T5ForConditionalGeneration"):
        return None
    kind, layers, sizes = keys.text("feed_forward_proj"), keys.whole("num_layers"), sizes_of(keys)
    return {
        "kind": "encoder-decoder",
        "d_model": sizes.hidden,
        "encoder_layers": layers,
        "decoder_layers": keys.whole("num_decoder_layers", default=layers),
        "num_attention_heads": sizes.heads,
        "d_ff": sizes.ffn,
        "d_kv": sizes.head_dim,
        "vocab_size": sizes.vocab,
        "gated_mlp": kind.startswith("gated-"),
        "hidden_act": "gelu_new" if kind == "gated-gelu" else activation(kind.removeprefix("gated-")),
        "relative_attention_num_buckets": keys.whole("relative_attention_num_buckets"),
        "tie_word_embeddings": True,  # also where the config says no (transformers 5, T5Config.__post_init__)
        "dropout": keys.number("dropout_rate", 0.1),
    }


def _two_sides(keys: Keys, **more: object) -> Table | None:
    sides = [[keys.whole(f"{side}_{key}") for key in ("attention_heads", "ffn_dim")] for side in ("encoder", "decoder")]
    if sides[0] != sides[1]:
        return None
    return {
        "kind": "encoder-decoder",
        "d_model": keys.whole("d_model"),
        "encoder_layers": keys.whole("encoder_layers"),
        "decoder_layers": keys.whole("decoder_layers"),
        "num_attention_heads": sides[0][0],
        "d_ff": sides[0][1],
        "vocab_size": keys.whole("vocab_size"),
        "hidden_act": activation(keys.text("activation_function")),
        "norm": "layernorm",
        "bias": True,
        "tie_word_embeddings": keys.flag("tie_word_embeddings", default=True),
        **more,
    }


def whisper(keys: Keys, architecture: str) -> Table | None:
    """Whisper: spectrograms read by two convolutions, fixed positions on the encoder's side."""
    if architecture != "WhisperForConditionalGeneration":
        return None
    heard = _wholes(keys, "max_source_positions", "max_target_positions", "num_mel_bins")
    return _two_sides(
        keys, **heard, key_bias=False, source_positions_trained=False, dropout=keys.number("dropout", 0.0)
    )


def bart(keys: Keys, architecture: str) -> Table | None:
    """BART: positions that begin at 2, a norm after the embeddings, none at the end."""
    if architecture != "BartForConditionalGeneration":
        return None
    positions = dict.fromkeys(("max_source_positions", "max_target_positions"), keys.whole("max_position_embeddings"))
    more = {"position_offset": 2, "norm_embeddings": True, "final_norm": False, "final_bias": True}
    return _two_sides(keys, **positions, **more, dropout=keys.number("dropout", 0.1))


_TOWER = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


class FollowedType(msgspec.Struct, frozen=True):
    operators: Callable[[Keys, str], Table | None]  # its `[model]` table by its keys, filled in, and its class
    usual: str  # the class of a config that names none
    needed: tuple[str, ...] = (*_TOWER, "vocab_size")  # what makes a model this one: keys that a file has to say


_SIZES = ("layers", "attention_heads", "ffn_dim")
_SIDES = ("d_model", *(f"{side}_{key}" for side in ("encoder", "decoder") for key in _SIZES), "vocab_size")
FOLLOWED: dict[str, FollowedType] = {
    "bart": FollowedType(bart, "BartForConditionalGeneration", _SIDES),
    "bert": FollowedType(bert, "BertModel"),
    "clip_text_model": FollowedType(clip, "CLIPTextModel", ()),
    "clip_vision_model": FollowedType(clip, "CLIPVisionModel", ()),
    "mt5": FollowedType(t5, "MT5ForConditionalGeneration"),
    "roberta": FollowedType(bert, "RobertaModel"),
    "t5": FollowedType(t5, "T5ForConditionalGeneration"),
    "vit": FollowedType(vit, "ViTModel", _TOWER),
    "whisper": FollowedType(whisper, "WhisperForConditionalGeneration", _SIDES),
    "xlm-roberta": FollowedType(bert, "XLMRobertaModel"),
}


class FollowedEncoder(msgspec.Struct, frozen=True):
    architecture: str
    table: Table


def followed_encoder(values: dict[str, Any]) -> FollowedEncoder | None:
    """The table of a config, as decoded; None if not every operator is followed, or where the table does not come to
    the tensors of its class. Raises DamagedError if a size is missing, or no whole number.
    """
    kind = str(values.get("model_type"))
    known = FOLLOWED.get(kind)
    if known is None:
        return None
    name, keys = named_class(values) or known.usual, Keys(values)
    table = known.operators(Keys(filled_in(values, kind)), name)
    if table is None:
        return None
    for needed in known.needed:
        keys.whole(needed)
    table = {key: value for key, value in table.items() if value is not None}
    tensors = generated_tensors(values | {"architectures": [name]})
    try:
        is_encoder = table["kind"] == "encoder"
        model = msgspec.convert(table, EncoderModel if is_encoder else EncoderDecoderModel)
        counted = (encoder_spec if is_encoder else encoder_decoder_spec)(model).parameters()
    except (msgspec.ValidationError, UserError):
        return FollowedEncoder(name, table)  # the reader of the table says what is wrong with it
    return FollowedEncoder(name, table) if tensors is None or counted == numbers_in(tensors.groups()) else None
