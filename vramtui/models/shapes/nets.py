"""Models by their generated shapes: their tensors as `[model]` tables list them, and the stream that each runs over.

An encoder of images or sound runs as a stream of `tokens` of one width, and a net of stages as a stream as large as all
its stages together, which is a guess.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import resources
from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from vramtui.core.base.late import late
from vramtui.core.schema.models import ENCODER_TENSORS, TensorGroup
from vramtui.models.families.families import Family
from vramtui.models.families.keys import CLASSES, TEXT_PARTS, Keys, head_of, labels_of, layer_count, sizes_of, synonyms
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.known import NamedShape, shape_table
from vramtui.models.tensor_list import CacheList, TensorList

# Types of models: decoders that are models by themselves, and look at a missing source if they read only words; those
# whose layers keep keys and values of the stream's width; those with norms before attention; and those of several parts
# that are all known.
TYPES: dict[str, frozenset[str]] = msgspec.json.decode(
    resources.files("vramtui.models.shapes").joinpath("types.json").read_bytes(), type=dict[str, frozenset[str]]
)
HEAD = 64  # of a head where a config says no number of them
STEM = "conv_stem"  # the first convolution, by which a model for images or sound is known
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
    """The shapes of the class that a config, filled in, names, `without` parts at these paths, and whether it is that
    class: where none is named, or one that is not known, they are those of the type's class for the role `usual`.

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


def named_class(values: Mapping[str, Any]) -> str:
    """The first class that a config names; empty if it names none."""
    listed = values.get("architectures")
    name = listed[0] if isinstance(listed, list) and listed else ""
    return name if isinstance(name, str) else ""


def generated_tensors(values: Mapping[str, Any], text: str = "") -> TensorList | None:
    """Every tensor of the class that a config names; None if its shapes are not known, or a key for them is missing.
    `text` is the key of the part that reads words; empty if it is the config itself.
    """
    name, table = named_class(values), shape_table()
    if not table.knows(name, values.get("model_type")):
        return None
    try:
        return _tensor_list(table.tensors(name, values), "", text)
    except DamagedError:
        return None


def _tensor_list(shapes: list[NamedShape], architecture: str, text: str) -> TensorList:
    tensors, is_stem = TensorList(), True
    for shape in shapes:
        is_tower = shape.path and text and not shape.path.startswith(text)
        tensors.place = "tower" if is_tower else "layers" if shape.repeats else "outside"
        tensors.add(shape_name(shape, architecture, stem=is_stem), *shape.shape, count=shape.count)
        is_stem = is_stem and len(shape.shape) < 3
    return tensors


def shape_name(tensor: NamedShape, architecture: str = "", *, stem: bool) -> str:
    """The name of a tensor in lists: its module's, or what it is; `stem` if it may be the first convolution."""
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
    return tuple(replace(group, name="class_out") if group.name in CLASSIFIERS else group for group in groups)


def stream_of(keys: Keys, groups: tuple[TensorGroup, ...]) -> Keys:
    """The config of a net that has none of a decoder's sizes, with those of a stream as large as its widest stage."""
    layers = [one for one in groups if one.place == "layers"] or list(groups)
    widest = max((one.shape[0] for one in layers if len(one.shape) == 1), default=1)
    hidden = keys.maybe("hidden_size") or widest
    heads = keys.maybe("num_attention_heads", "encoder_attention_heads") or max(1, hidden // HEAD)
    depth = max((one.count for one in layers if len(one.shape) == 1), default=1)
    # Patches of an image, of 32 pixels a side if the config does not say.
    image, patch = keys.maybe("image_size") or 224, keys.maybe("patch_size") or 32
    sizes: dict[str, object] = {
        "hidden_size": hidden,
        "num_hidden_layers": min(depth, 1024),
        "num_attention_heads": heads if hidden % heads == 0 else 1,
        "intermediate_size": keys.maybe("intermediate_size", "encoder_ffn_dim") or 4 * hidden,
        "vocab_size": keys.maybe("vocab_size") or labels_of(keys),
        "max_position_embeddings": keys.maybe("max_position_embeddings") or max(1, image // max(1, patch)) ** 2,
    }
    return keys.changed(**sizes)


vision_table = late("vramtui.models.readers.torchvision:vision_table")
# Torchvision's nets of a type: the same layers.
TORCHVISION = {
    "convnext": ("convnext_tiny", "convnext_small", "convnext_base", "convnext_large"),
    "resnet": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    "swin": ("swin_t", "swin_s", "swin_b"),
}
USUAL_CLASSES = 1000
# Of what norms before attention and MLP, and after its last block: what the last norm may be called.
LAST_NORMS = ("norm", "layernorm", "layer_norm", "post_layernorm", "final_layer_norm")
WORDS = {"token_embedding": "embed_tokens", "position_embedding": "embed_positions"}
PLAIN = Family(norm="layernorm", gated=False, bias=True, mlp_bias=True, tied=True)
# Stages of a net at most.
MOST_STAGES = 256


class Stream(msgspec.Struct, frozen=True):
    """A stream that runs like a net.

    Attributes:
        hidden: width.
        layers: blocks.
        heads: of each.
        ffn: width of the MLP.
        tokens: of one image or sound; None if they are not known.
        staged: whether its stages differ in size, so that this stands for all of them.
        kept: numbers of a token that each block of a decoder keeps.
    """

    hidden: int
    layers: int
    heads: int
    ffn: int
    tokens: int | None = None
    staged: bool = False
    per_token: int = 0


class NetShape(msgspec.Struct, frozen=True, kw_only=True):
    """A model other than a decoder."""

    keys: Keys  # its config with the sizes of its stream
    tensors: TensorList  # every tensor
    caches: CacheList  # what its decoder keeps, where it has one
    exact: bool  # whether they are of the class that the config names
    staged: bool  # whether its stages differ in size, so that the stream stands for all of them


# How a net of each type runs; tokens of sound are those of 30 seconds.
STREAMS: dict[str, Callable[[Keys], Stream]] = {}


def _streams(*kinds: str) -> Callable[[Callable[[Keys], Stream]], Callable[[Keys], Stream]]:
    """Register how nets of these types run."""

    def register(stream: Callable[[Keys], Stream]) -> Callable[[Keys], Stream]:
        STREAMS.update(dict.fromkeys(kinds, stream))
        return stream

    return register


def is_net(kind: str) -> bool:
    """Return whether a type of model is one of these."""
    return kind in STREAMS


def read_net(keys: Keys) -> NetShape:
    """The tensors and the stream of a model of a type that `is_net`."""
    tensors, exact = _net_tensors(keys)
    try:
        stream = STREAMS[keys.text("model_type")](keys)
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise DamagedError("has sizes of stages from which its stream cannot be worked out") from error
    sizes: dict[str, object] = {
        "hidden_size": max(1, stream.hidden),
        "num_hidden_layers": max(1, stream.layers),
        "num_attention_heads": max(1, stream.heads),
        "intermediate_size": max(1, stream.ffn),
        "vocab_size": keys.maybe("vocab_size") or labels_of(keys),
    }
    if stream.tokens is not None:
        sizes["max_position_embeddings"] = max(1, stream.tokens)
    caches = CacheList()
    caches.add(per_token=stream.per_token, layers=stream.layers)
    return NetShape(keys=keys.changed(**sizes), tensors=tensors, caches=caches, exact=exact, staged=stream.staged)


def _net_tensors(keys: Keys) -> tuple[TensorList, bool]:
    """All of them, named so that what runs like an encoder knows its kind; and whether the class is known."""
    shapes, exact = config_shapes(keys.values)
    kind, tensors, is_stem = keys.text("model_type"), TensorList(), True
    of_words = kind.endswith("_text_model")
    last = None
    for at, shape in enumerate(shapes):
        is_outside = not shape.repeats and shape.path != "text_config"
        if is_outside and len(shape.shape) == 1 and shape.name in LAST_NORMS:
            last = at
    for at, shape in enumerate(shapes):
        tensors.place = "layers" if shape.repeats else "outside"
        tensors.prefix = "text." if shape.path == "text_config" else ""
        name = shape_name(shape, stem=is_stem)
        if at == last or name == "norm":
            name = "norm" if kind in PRE_NORM and (at == last or last is None) else "last_norm"
        if not of_words and name == "embed_positions":
            name = "positions"
        tensors.add(WORDS.get(name, name) if of_words else name, *shape.shape, count=shape.count)
        is_stem = is_stem and name != STEM
    tensors.prefix = ""
    return tensors, exact


def twin_of(net: NetShape, parameters: int) -> dict[str, Any] | None:
    """The `[model]` table of torchvision's net of the same type with as many parameters; None if there is none."""
    last = next((one for one in net.tensors.groups() if one.name == "classifier" and len(one.shape) > 1), None)
    if last is None:
        return None
    labels, width = last.shape
    size = net.keys.values.get("image_size")
    pixels = size if isinstance(size, int) else None
    for name in TORCHVISION.get(net.keys.text("model_type"), ()):
        table = vision_table(name, image_size=pixels)
        if table is not None and table.get("parameters") == parameters + (USUAL_CLASSES - labels) * (width + 1):
            return dict(vision_table(name, classes=labels, image_size=pixels))
    return None


def _first(keys: Keys, *names: str) -> int:
    """The first of these keys that is there, a number or a list's first item; raises DamagedError if none is."""
    for name in synonyms(*names):
        listed = keys.items(name)
        value = listed[0] if listed else keys.values.get(name)
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            return int(value)
    raise DamagedError(f"has no {keys.inside}{names[0]}, without which its tensors are not known")


def _side(keys: Keys, name: str, at: int = 0) -> int:
    value = keys.values.get(name)
    return int(value[at]) if isinstance(value, list) else int(value)  # type: ignore[call-overload] # else a TypeError


def patches(keys: Keys) -> int:
    """Patches of an image; raises DamagedError if its size or theirs is missing."""
    for name in ("image_size", "patch_size"):
        value = keys.values.get(name)
        sides = value if isinstance(value, list) else [value, value]
        if len([side for side in sides if isinstance(side, int) and side > 0]) != 2:
            raise DamagedError(f"has no {keys.inside}{name}, without which its tensors are not known")
    rows, columns = (_side(keys, "image_size", at) // _side(keys, "patch_size", at) for at in (0, 1))
    return rows * columns


def plain_stream(keys: Keys, tokens: int | None = None, **changes: Any) -> Stream:  # noqa: ANN401 - any of its fields
    fields = {
        "hidden": ("hidden_size",),
        "layers": ("num_hidden_layers", "depth", "encoder_layers"),
        "heads": ("num_attention_heads", "encoder_attention_heads"),
        "ffn": ("intermediate_size", "mlp_dim", "encoder_ffn_dim"),
    }
    sizes: dict[str, Any] = {field: _first(keys, *names) for field, names in fields.items() if field not in changes}
    return Stream(**sizes, tokens=tokens, **changes)


def _transformer(keys: Keys, more: int = 0, part: str = "", *, registers: bool = False, ratio: bool = False) -> Stream:
    """A vision transformer with `more` tokens besides its patches, in a part of its own where it has one."""
    own = keys.table(part) if part else keys
    tokens = patches(own) + more + (own.whole("num_register_tokens", default=0) if registers else 0)
    changes = {"ffn": int(own.whole("hidden_size") * own.number("mlp_ratio", 4))} if ratio else {}
    return plain_stream(own, tokens, **changes)


def _part(keys: Keys, part: str, tokens: int | str | None = None, **changes: Any) -> Stream:  # noqa: ANN401 - as above
    """A part's stream; its tokens are a number or stand under a key."""
    own = keys.table(part)
    return plain_stream(own, own.maybe(tokens) if isinstance(tokens, str) else tokens, **changes)


@_streams("yolos")
def yolos_stream(keys: Keys) -> Stream:
    rows, columns = (_side(keys, "image_size", at) // keys.whole("patch_size") for at in (0, 1))
    return plain_stream(keys, rows * columns + 1 + keys.whole("num_detection_tokens"))


def _staged(
    depths: Iterable[int], widths: Iterable[int], sides: Iterable[int], heads: int = 1, ffn: int | None = None
) -> Stream:
    """A net of stages as a stream of its last stage's width, as large as all stages together."""
    stages = list(zip(depths, widths, sides, strict=False))
    if not 0 < len(stages) <= MOST_STAGES:
        raise DamagedError(f"has no stages, or more than {MOST_STAGES}")
    layers, hidden = sum(depth for depth, _, _ in stages), stages[-1][1]
    tokens = ceil(sum(depth * side**2 * width for depth, width, side in stages) / (layers * hidden))
    return Stream(hidden, layers, heads, hidden if ffn is None else ffn, tokens, staged=True)


def _halved(keys: Keys, side: int | None = None) -> Iterable[int]:
    """Sides of stages that each halve the one before."""
    first = _side(keys, "image_size") // _side(keys, "patch_size") if side is None else side
    return [first // 2**stage for stage in range(MOST_STAGES)]


@_streams("convnext", "convnextv2")
def convnext_stream(keys: Keys) -> Stream:
    widths = keys.items("hidden_sizes")
    return _staged(keys.items("depths"), widths, _halved(keys), ffn=4 * widths[len(keys.items("depths")) - 1])


def _doubled(keys: Keys, *, headed: bool = True, sides: Iterable[int] | None = None) -> Stream:
    """Swin and its kin: each stage has twice the width of the one before."""
    depths, by = keys.items("depths")[: MOST_STAGES + 1], keys.number("embed_dim_multiplier", 2)
    widths = [int(keys.whole("embed_dim") * by**stage) for stage in range(len(depths))]
    heads = keys.items("num_heads")[len(depths) - 1] if headed else 1
    ffn = int(widths[-1] * keys.number("mlp_ratio", 4))
    return _staged(depths, widths, _halved(keys) if sides is None else sides, heads, ffn)


def _strided(keys: Keys, side: int | None = None, *, headed: bool = True) -> Stream:
    """SegFormer and its kin: each stage has a stride, a width and a ratio of its own."""
    depths, widths, sides = keys.items("depths"), keys.items("hidden_sizes"), []
    now = _side(keys, "image_size") if side is None else side
    for stride in keys.items("strides"):
        now //= stride
        sides.append(now)
    last = len(depths) - 1
    heads = keys.items("num_attention_heads")[last] if headed else 1
    ratio = keys.items("mlp_ratios")[last] if headed else keys.number("mlp_ratio", 4)
    return _staged(depths, widths, sides, heads, int(widths[last] * ratio))


def _convolutions(keys: Keys, side: int = 56) -> Stream:
    return _staged(keys.items("depths"), keys.items("hidden_sizes"), _halved(keys, side))


@_streams("efficientnet")
def efficientnet_stream(keys: Keys) -> Stream:
    width, layers = keys.whole("hidden_dim"), sum(keys.items("num_block_repeats"))
    return Stream(width, layers, 1, width, (keys.whole("image_size") // 32) ** 2, staged=True)


@_streams("upernet")
def upernet_stream(keys: Keys) -> Stream:
    own = keys.table("backbone_config")
    depths, first = own.items("depths")[: MOST_STAGES + 1], own.maybe("embed_dim")
    widths = [first * 2**stage for stage in range(len(depths))] if first else own.items("hidden_sizes")
    return _staged(depths, widths, _halved(own, 128))


@_streams("rt_detr", "rt_detr_v2")
def detr_stream(keys: Keys) -> Stream:
    return replace(_convolutions(keys.table("backbone_config"), 160), heads=8)


def _of_backbone(keys: Keys, *, ratio: bool = False) -> Stream:
    return replace(_transformer(keys, 1, "backbone_config", ratio=ratio), staged=True)


@_streams("sam")
def sam_stream(keys: Keys) -> Stream:
    own = keys.table("vision_config")
    tokens = (own.whole("image_size") // own.whole("patch_size")) ** 2
    return plain_stream(own, tokens, ffn=int(own.whole("hidden_size") * own.number("mlp_ratio", 4)), staged=True)


def _decoder(keys: Keys, tokens: int | str, part: str = "", *, per_token: int | None = None, **names: str) -> Stream:
    """A recogniser of speech: its decoder's stream and cache. `tokens` are how many, or the key that says it; `part` is
    where the decoder's config stands; a block keeps `per_token` numbers of a token, else keys and values of the
    stream's width; `names` are the keys of its sizes where they are not the usual ones.
    """
    own = keys.table(part) if part else keys
    sizes = {field: own.whole(name) for field, name in names.items()}
    stream = plain_stream(own, own.whole(tokens) if isinstance(tokens, str) else tokens, staged=True, **sizes)
    return replace(stream, per_token=2 * stream.hidden if per_token is None else per_token)


@_streams("moonshine")
def moonshine_stream(keys: Keys) -> Stream:
    heads = keys.whole("decoder_num_attention_heads")
    width = keys.whole("hidden_size") // heads * keys.whole("decoder_num_key_value_heads", default=heads)
    names = {"layers": "decoder_num_hidden_layers", "heads": "decoder_num_attention_heads"}
    return _decoder(keys, "max_position_embeddings", per_token=2 * width, **names)


@_streams("dia")
def dia_stream(keys: Keys) -> Stream:
    own = keys.table("decoder_config")
    kv_heads = own.whole("num_key_value_heads")
    return _decoder(keys, "max_position_embeddings", "decoder_config", per_token=2 * kv_heads * own.whole("head_dim"))


@_streams("pop2piano")
def pop2piano_stream(keys: Keys) -> Stream:
    layers = keys.maybe("num_decoder_layers") or keys.whole("num_layers")
    stream = plain_stream(keys, 512, layers=layers, staged=True)
    return replace(stream, per_token=2 * keys.whole("num_heads") * keys.whole("d_kv"))


_SIDES: dict[str, Any] = {"layers": "decoder_layers", "heads": "decoder_attention_heads", "ffn": "decoder_ffn_dim"}
_PAIR = partial(_transformer, more=1, part="vision_config")
_WAVE = partial(plain_stream, tokens=1500, staged=True)
_SQUEEZED = partial(plain_stream, tokens=750, staged=True)
PRE_NORM = TYPES["pre_norm"]
STREAMS |= {
    "deit": partial(_transformer, more=2),
    "ijepa": _transformer,
    **dict.fromkeys(("vit_msn", "beit", "data2vec-vision"), partial(_transformer, more=1)),
    "dinov2": partial(_transformer, more=1, ratio=True),
    "dinov2_with_registers": partial(_transformer, more=1, registers=True, ratio=True),
    "dinov3_vit": partial(_transformer, more=1, registers=True),
    **dict.fromkeys(
        ("clip_text_model", "metaclip_2_text_model", "clipseg_text_model", "owlvit_text_model", "owlv2_text_model",
         "siglip_text_model", "siglip2_text_model", "chinese_clip_text_model"),
        plain_stream,
    ),
    **dict.fromkeys(
        ("metaclip_2_vision_model", "clipseg_vision_model", "chinese_clip_vision_model", "altclip_vision_model",
         "owlvit_vision_model", "owlv2_vision_model"),
        plain_stream,
    ),
    **dict.fromkeys(("clip", "metaclip_2", "chinese_clip", "clipseg", "owlvit", "owlv2"), _PAIR),
    "siglip": partial(_PAIR, more=0),
    "siglip2": partial(_part, part="vision_config", tokens="num_patches"),
    **dict.fromkeys(("swin", "donut-swin", "swinv2"), _doubled),
    "segformer": partial(_strided, side=512),
    "glpn": partial(_strided, side=512),
    "poolformer": partial(_strided, side=224, headed=False),
    **dict.fromkeys(("pvt", "pvt_v2"), _strided),
    "hiera": lambda keys: _doubled(
        keys, sides=_halved(keys, _side(keys, "image_size") // _side(keys, "patch_stride"))
    ),
    "focalnet": partial(_doubled, headed=False),
    **dict.fromkeys(("resnet", "regnet", "bit"), _convolutions),
    "depth_anything": partial(_of_backbone, ratio=True),
    "dpt": lambda keys: replace(_transformer(keys, 1), staged=True),
    "zoedepth": _of_backbone,
    **dict.fromkeys(("wav2vec2", "hubert", "unispeech", "unispeech-sat", "wavlm", "data2vec-audio"), _WAVE),
    **dict.fromkeys(("sew", "sew-d"), _SQUEEZED),
    "parakeet_ctc": partial(_part, part="encoder_config", tokens=375),
    "canary": partial(_decoder, tokens="max_position_embeddings", part="decoder_config"),
    "cohere_asr": partial(_decoder, tokens="max_position_embeddings"),
    "speech_to_text": partial(_decoder, tokens="max_target_positions", hidden="d_model", **_SIDES),
    "speecht5": partial(_decoder, tokens="max_text_positions", **_SIDES),
}  # fmt: skip


# Numbers of a token that a layer keeps: keys and values of the stream's width, or of their heads'.
Kept = Callable[[Keys], int]
DECODER_LAYERS = ("decoder_layers",)


def _wide(keys: Keys) -> int:
    return 2 * keys.whole("hidden_size")


TRANSLATORS = TYPES["translators"]
# By type.
TEXTS: dict[str, Kept] = {
    **dict.fromkeys((*TRANSLATORS, *TYPES["wide"]), _wide),
    **dict.fromkeys(("fnet", "funnel"), lambda _keys: 0),
    **dict.fromkeys(("esmc", "ultrabert"), lambda keys: sizes_of(keys).keys + sizes_of(keys).values),
    "mobilebert": lambda keys: 2 * keys.whole("true_hidden_size"),
    "pix2struct_text_model": lambda keys: 2 * keys.whole("num_heads") * keys.whole("d_kv"),
}  # fmt: skip


def read_text(keys: Keys) -> tuple[TensorList, CacheList, bool]:
    """The tensors of a model, what its layers keep, and whether they are of the class that its config names."""
    role = "causal" if keys.text("model_type") in TRANSLATORS else "masked"
    tensors, exact = listed_shapes(keys.values, role)
    # A translator that is whole, or tells classes, has its encoder too: no stream of a decoder's depth stands for that.
    named = named_class(keys.values)
    is_whole = bool(named) and not named.endswith("ForCausalLM")
    exact = exact and not (role == "causal" and (is_whole or head_of(keys) == CLASSES))
    return tensors, text_caches(keys), exact


def text_caches(keys: Keys) -> CacheList:
    caches, kind = CacheList(), keys.text("model_type")
    depth = DECODER_LAYERS if kind in TRANSLATORS else ()
    caches.add(per_token=TEXTS.get(kind, _wide)(keys), layers=layer_count(keys, *depth))
    return caches


JOINED = TYPES["joined"]
SUFFIX = "_config"
THINKER = "thinker_config"
# Types of towers whose queries and keys are turned by their place.
ROTARY = ("qwen", "pixtral", "gemma4", "glm4v", "kimi", "llama4", "mimo", "dots")
ROTARY_SOUND = ("glmasr", "voxtral_realtime")
CHANNELS = ("num_channels", "in_channels", "in_chans")


def joins(kind: str) -> bool:
    """Return whether a type of model is one of several parts that is known."""
    return kind in JOINED


class Joined(msgspec.Struct, frozen=True):
    """Return whether every part is known, and how many tokens an image takes."""

    complete: bool
    images: dict[str, int] | None
    tower: dict[str, Any] | None = None
    audio_tower: dict[str, Any] | None = None


def add_towers(tensors: TensorList, whole: Keys, values: dict[str, Any]) -> Joined:
    """Towers and what joins them to words; where these are no part of their own, or of a type that no family
    describes, all tensors. `tensors`, of the part that reads words, get the others in the place of towers; `whole` is
    the config, filled in, with its parts at its top, and `values` the same as its class has it.
    """
    is_whole = not tensors.groups()
    words = (*(name for name in TEXT_PARTS if name != THINKER), *(f"{THINKER}.{name}" for name in TEXT_PARTS))
    shapes, exact = config_shapes(values, "image-text", () if is_whole else words)
    gated: set[str] = set()
    for shape in shapes:
        own = shape.path.rpartition(".")[2]
        of_words = is_whole and (not shape.path or own in TEXT_PARTS)
        if shape.name == "lm_head" and not is_whole:
            continue
        name = own.removesuffix(SUFFIX)
        tensors.place = ("layers" if shape.repeats else "outside") if of_words else "tower"
        tensors.prefix = "" if of_words else f"{name}." if name and own != THINKER else "projector."
        if shape.name.startswith("gate") and len(shape.shape) > 1:
            gated.add(name)
        called = shape_name(shape, named_class(values) if of_words else "", stem=False)
        tensors.add(called, *shape.shape, count=shape.count)
    tensors.prefix = ""
    vision = whole.table("vision_config") if isinstance(whole.values.get("vision_config"), dict) else None
    # The values of `ImageTokens`; None if they are not known.
    rule = IMAGE_TOKENS.get(whole.text("model_type"))
    images = None if rule is None or vision is None else rule(whole, vision)
    seen = _tower_shape(vision, images, gated="vision" in gated)
    return Joined(exact, images, seen, _audio_shape(whole, gated="audio" in gated))


# How many tokens of a sequence an image takes, as `ImageTokens` has it; bounds are those of the models' own
# preprocessor_config.json on huggingface.co.
Rule = Callable[[Keys, Keys], dict[str, int]]


def _cells(least: int, most: int) -> Rule:
    def rule(_whole: Keys, vision: Keys) -> dict[str, int]:
        cell = vision.whole("patch_size") * vision.whole("spatial_merge_size")
        return {"cell": cell, "least": least, "most": most}

    return rule


def _fixed(name: str) -> Rule:
    return lambda whole, _vision: {"fixed": whole.whole(name)}


def _rows(whole: Keys, vision: Keys) -> dict[str, int]:
    """Pixtral's, which keeps an image's size."""
    cell = vision.whole("patch_size") * whole.whole("spatial_merge_size", default=1)
    return {"cell": cell, "longest": vision.whole("image_size"), "per_row": 1}


IMAGE_TOKENS: dict[str, Rule] = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), _cells(56 * 56, 12_845_056)),
    "dots_ocr": _cells(3136, 11_289_600),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), _cells(65_536, 16_777_216)),
    "paligemma": lambda _whole, vision: {"fixed": patches(vision)},
    "llava": lambda whole, vision: (
        _rows(whole, vision) if vision.text("model_type") == "pixtral" else {"fixed": patches(vision)}
    ),
    "gemma3": _fixed("mm_tokens_per_image"),
    "gemma3n": _fixed("vision_soft_tokens_per_image"),
    "gemma4": lambda whole, _vision: {"fixed": whole.whole("vision_soft_tokens_per_image", default=280)},
    "mistral3": _rows,
    **dict.fromkeys(("blip-2", "instructblip"), _fixed("num_query_tokens")),
    "idefics2": lambda whole, _vision: {"fixed": whole.table("perceiver_config").whole("resampler_n_latents")},
}
# What a tower like Whisper's encoder runs over, as `TowerShape` has it (processing_*.py of transformers 5.23):
# positions to a token, tokens of a second, positions to which a clip is filled up (or the key that says it), and
# tokens of a clip that is always whole.
SOUNDS: dict[str, tuple[int, float, int | str | None, int | None]] = {
    **dict.fromkeys(("qwen2_audio", "audioflamingo3"), (2, 25, "max_source_positions", None)),
    "voxtral": (4, 12.5, "max_source_positions", 375),
    "glmasr": (4, 12.5, 1500, None),
    **dict.fromkeys(("qwen2_5_omni", "qwen2_5_omni_thinker"), (2, 25, None, None)),
    "voxtral_realtime": (4, 12.5, None, None),
}


def _sizes(own: Keys, *, gated: bool, rotary: bool, **names: str) -> dict[str, Any]:
    stream = plain_stream(own, **{field: own.whole(name) for field, name in names.items() if own.maybe(name)})
    return {
        "hidden_size": stream.hidden, "num_hidden_layers": stream.layers, "num_attention_heads": stream.heads,
        "intermediate_size": stream.ffn, "gated_mlp": gated, "rotary": rotary,
    }  # fmt: skip


def _audio_shape(whole: Keys, *, gated: bool) -> dict[str, Any] | None:
    """The values of `TowerShape`; None for encoders of another kind than Whisper's."""
    own, rule = whole.table("audio_config"), SOUNDS.get(whole.text("model_type"))
    if rule is None or not own.values:
        return None
    per_token, tokens, clip, whole_clip = rule
    rotary = own.text("model_type").startswith(ROTARY_SOUND)
    names = {"hidden": "d_model", "layers": "encoder_layers", "ffn": "encoder_ffn_dim"}
    try:
        shape = _sizes(own, gated=gated, rotary=rotary, **names)
        clip = own.whole(clip) if isinstance(clip, str) else clip
    except DamagedError:
        return None
    shape |= {"per_token": per_token, "tokens_per_second": tokens, "pixels": 2 * own.whole("num_mel_bins", default=80)}
    return shape | {key: value for key, value in (("clip", clip), ("tokens_per_clip", whole_clip)) if value}


def _tower_shape(own: Keys | None, images: dict[str, int] | None, *, gated: bool) -> dict[str, Any] | None:
    """The values of `TowerShape`; None if one of its sizes is not known."""
    if own is None or images is None:
        return None
    rotary, names = own.text("model_type").startswith(ROTARY), {}
    if own.maybe("embed_dim"):
        names = {"hidden": "embed_dim"}
    try:
        patch, channels = own.whole("patch_size"), own.whole(*CHANNELS, default=3)
        ratio = own.values.get("mlp_ratio")
        if isinstance(ratio, (int, float)) and own.maybe("embed_dim", "hidden_size") is not None:
            own = own.changed(intermediate_size=int(own.whole("embed_dim", "hidden_size") * ratio))
        cell, pool = images.get("cell"), own.maybe("pooling_kernel_size")
        side = cell / patch if cell else pool
        return {
            **_sizes(own, gated=gated, rotary=rotary, **names),
            "per_token": side**2 if side else patches(own) / images["fixed"],
            "pixels": channels * patch * patch * own.whole("temporal_patch_size", default=1),
        }
    except (DamagedError, KeyError, TypeError, ValueError, ArithmeticError):
        return None
