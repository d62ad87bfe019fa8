"""Models for images and for sound that are no decoders: encoders, nets of stages, detectors, recognisers of speech.

Their tensors are the generated shapes'. What such a model holds while it runs is taken from a stream of `tokens` of one
width; a net of stages has those of a stream as large as all its stages together, and is said to be a guess.
"""

from collections.abc import Callable, Iterable
from functools import partial
from math import ceil
from typing import Any

import msgspec

from vramtui.core.base.late import late
from vramtui.models.families.families import Family
from vramtui.models.families.keys import FFN, HEADS, HIDDEN, LAYERS, Keys, labels_of
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.listed import STEM, config_shapes, shape_name
from vramtui.models.tensor_list import CacheList, TensorList

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
    """A model other than a decoder.

    Attributes:
        keys: its config with the sizes of its stream.
        tensors: every tensor.
        caches: what its decoder keeps, where it has one.
        exact: whether they are of the class that the config names.
        staged: whether its stages differ in size, so that the stream stands for all of them.
    """

    keys: Keys
    tensors: TensorList
    caches: CacheList
    exact: bool
    staged: bool


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
    """The first of these keys that is there, a number or a list's first item.

    Raises:
        DamagedError: none is.
    """
    for name in names:
        listed = keys.items(name)
        value = listed[0] if listed else keys.values.get(name)
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            return int(value)
    raise DamagedError(f"has no {keys.inside}{names[0]}, without which its tensors are not known")


def _side(keys: Keys, name: str, at: int = 0) -> int:
    value = keys.values.get(name)
    return int(value[at]) if isinstance(value, list) else int(value)  # type: ignore[call-overload] # else a TypeError


def patches(keys: Keys) -> int:
    """Patches of an image.

    Raises:
        DamagedError: its size or theirs is missing.
    """
    for name in ("image_size", "patch_size"):
        value = keys.values.get(name)
        sides = value if isinstance(value, list) else [value, value]
        if len([side for side in sides if isinstance(side, int) and side > 0]) != 2:
            raise DamagedError(f"has no {keys.inside}{name}, without which its tensors are not known")
    rows, columns = (_side(keys, "image_size", at) // _side(keys, "patch_size", at) for at in (0, 1))
    return rows * columns


def plain_stream(keys: Keys, tokens: int | None = None, **changes: Any) -> Stream:  # noqa: ANN401 - any of its fields
    fields = {
        "hidden": HIDDEN,
        "layers": (*LAYERS, "depth", "encoder_layers"),
        "heads": (*HEADS, "encoder_attention_heads"),
        "ffn": (*FFN, "mlp_dim", "encoder_ffn_dim"),
    }
    sizes: dict[str, Any] = {field: _first(keys, *names) for field, names in fields.items() if field not in changes}
    return Stream(**sizes, tokens=tokens, **changes)


def _transformer(keys: Keys, more: int = 0, part: str = "", *, registers: bool = False, ratio: bool = False) -> Stream:
    """A vision transformer with `more` tokens beside its patches, in a part of its own where it has one."""
    own = keys.table(part) if part else keys
    tokens = patches(own) + more + (own.whole("num_register_tokens", default=0) if registers else 0)
    changes = {"ffn": int(own.whole(*HIDDEN) * own.number("mlp_ratio", 4))} if ratio else {}
    return plain_stream(own, tokens, **changes)


def _part(keys: Keys, part: str, tokens: int | str | None = None, **changes: Any) -> Stream:  # noqa: ANN401 - as above
    """A part's stream; its tokens are a number or stand under a key."""
    own = keys.table(part)
    return plain_stream(own, own.maybe(tokens) if isinstance(tokens, str) else tokens, **changes)


@_streams("yolos")
def yolos_stream(keys: Keys) -> Stream:
    sides = (_side(keys, "image_size", at) // keys.whole("patch_size") for at in (0, 1))
    rows, columns = sides
    return plain_stream(keys, rows * columns + 1 + keys.whole("num_detection_tokens"))


def _staged(
    depths: Iterable[int], widths: Iterable[int], sides: Iterable[int], heads: int = 1, ffn: int | None = None
) -> Stream:
    """A net of stages as a stream of its last stage's width, as large as all stages together."""
    stages = list(zip(depths, widths, sides, strict=False))
    if not 0 < len(stages) <= MOST_STAGES:
        raise DamagedError(f"has no stages, or more than {MOST_STAGES}")
    layers, hidden = sum(depth for depth, _, _ in stages), stages[-1][1]
    work = sum(depth * side**2 * width for depth, width, side in stages)
    tokens = ceil(work / (layers * hidden))
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
    own = keys.table("backbone_config")
    return msgspec.structs.replace(_convolutions(own, 160), heads=8)


def _of_backbone(keys: Keys, *, ratio: bool = False) -> Stream:
    return msgspec.structs.replace(_transformer(keys, 1, "backbone_config", ratio=ratio), staged=True)


@_streams("sam")
def sam_stream(keys: Keys) -> Stream:
    own = keys.table("vision_config")
    tokens = (own.whole("image_size") // own.whole("patch_size")) ** 2
    return plain_stream(own, tokens, ffn=int(own.whole("hidden_size") * own.number("mlp_ratio", 4)), staged=True)


def _decoder(keys: Keys, tokens: int | str, part: str = "", *, per_token: int | None = None, **names: str) -> Stream:
    """A recogniser of speech: its decoder's stream and cache.

    Args:
        keys: the config.
        tokens: how many there are, or the key that says it.
        part: where the decoder's config stands.
        per_token: numbers that a block keeps of a token; keys and values of the stream's width where not given.
        names: the keys of its sizes where they are not the usual ones.
    """
    own = keys.table(part) if part else keys
    sizes = {field: own.whole(name) for field, name in names.items()}
    stream = plain_stream(own, own.whole(tokens) if isinstance(tokens, str) else tokens, staged=True, **sizes)
    return msgspec.structs.replace(stream, per_token=2 * stream.hidden if per_token is None else per_token)


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
    return msgspec.structs.replace(stream, per_token=2 * keys.whole("num_heads") * keys.whole("d_kv"))


_SIDES: dict[str, Any] = {"layers": "decoder_layers", "heads": "decoder_attention_heads", "ffn": "decoder_ffn_dim"}
_PAIR = partial(_transformer, more=1, part="vision_config")
_WAVE = partial(plain_stream, tokens=1500, staged=True)
_SQUEEZED = partial(plain_stream, tokens=750, staged=True)
PRE_NORM = frozenset({
    "beit", "bit", "canary", "clip", "clip_text_model", "clipseg_text_model", "cohere_asr", "convnext", "convnextv2",
    "data2vec-vision", "deit", "depth_anything", "dia", "dinov2", "dinov2_with_registers", "dinov3_vit", "dpt",
    "focalnet", "glpn", "hiera", "ijepa", "metaclip_2_text_model", "moonshine", "owlv2_text_model",
    "owlvit_text_model", "poolformer", "pop2piano", "pvt", "regnet", "segformer", "siglip", "siglip2",
    "siglip2_text_model", "siglip_text_model", "speech_to_text", "swin", "swinv2", "vit_msn", "yolos",
})  # fmt: skip
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
    "dpt": lambda keys: msgspec.structs.replace(_transformer(keys, 1), staged=True),
    "zoedepth": _of_backbone,
    **dict.fromkeys(("wav2vec2", "hubert", "unispeech", "unispeech-sat", "wavlm", "data2vec-audio"), _WAVE),
    **dict.fromkeys(("sew", "sew-d"), _SQUEEZED),
    "parakeet_ctc": partial(_part, part="encoder_config", tokens=375),
    "canary": partial(_decoder, tokens="max_position_embeddings", part="decoder_config"),
    "cohere_asr": partial(_decoder, tokens="max_position_embeddings"),
    "speech_to_text": partial(_decoder, tokens="max_target_positions", hidden="d_model", **_SIDES),
    "speecht5": partial(_decoder, tokens="max_text_positions", **_SIDES),
}  # fmt: skip
