"""Models of several parts: towers for images and sound and what joins them to the part that reads words, by their
generated shapes; what a tower runs over, and how many tokens of a sequence an image or a sound takes.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from vramtui.models.families.keys import HIDDEN, TEXT_PARTS, Keys
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.listed import add_shape, config_shapes, named_class
from vramtui.models.shapes.nets import patches, plain_stream
from vramtui.models.tensor_list import TensorList

# Types whose every part is known.
JOINED = frozenset({
    "aria", "audioflamingo3", "aya_vision", "blip", "blip-2", "cohere2_vision", "cosmos3_edge", "cosmos3_omni",
    "deepseek_vl", "deepseek_vl_hybrid", "ernie4_5_vl_moe", "exaone4_5", "florence2", "fun_asr_nano", "fuyu",
    "gemma3", "gemma3n", "gemma4", "gemma4_unified", "git", "glm46v", "glm4v", "glm4v_moe", "glm5_next", "glm_ocr",
    "glmasr", "got_ocr2", "granite_docling", "granite_speech", "granite_speech_plus", "hyperclovax_vision_v2",
    "idefics", "idefics2", "idefics3", "instructblip", "instructblipvideo", "internvl", "internvl_chat", "kimi_k25",
    "kosmos-2", "kosmos-2.5", "kyutai_speech_to_text", "lfm2_vl", "lfm3_vl", "lighton_ocr", "llama4", "llava",
    "llava_next", "llava_next_video", "llava_onevision", "minicpm_ocr", "minicpmv4_6", "minicpmv4_7",
    "minimax_m3_vl", "mistral3", "mistral_large4", "mllama", "modernvbert", "molmo2", "moss_transcribe_diarize",
    "muse_glimmer", "nemo_speechlm", "nemotron_h_omni", "ovis2", "paddleocr_vl", "paligemma", "phi4_multimodal",
    "pix2struct", "pp_formulanet", "qianfan_ocr", "qwen2_5_omni", "qwen2_5_omni_thinker", "qwen2_5_vl",
    "qwen2_audio", "qwen2_vl", "qwen3_5", "qwen3_5_moe", "qwen3_asr", "qwen3_omni_moe_thinker", "qwen3_vl",
    "qwen3_vl_moe", "smolvlm", "step3p7", "ultravbert", "unlimited_ocr", "vibevoice_asr", "video_llama_3",
    "video_llava", "vipllava", "vision-encoder-decoder", "voxtral", "voxtral_realtime",
})  # fmt: skip
SUFFIX = "_config"
THINKER = "thinker_config"
# Types of towers whose queries and keys are turned by their place.
ROTARY = ("qwen", "pixtral", "gemma4", "glm4v", "kimi", "llama4", "mimo")
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
    describes, all tensors.

    Args:
        tensors: those of the part that reads words; get the others, in the place of towers.
        whole: the config, filled in, with its parts at its top.
        values: the same as its class has it.
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
        add_shape(tensors, shape, named_class(values) if of_words else "")
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
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), _cells(65_536, 16_777_216)),
    "paligemma": lambda _whole, vision: {"fixed": patches(vision)},
    "llava": lambda whole, vision: (
        _rows(whole, vision) if vision.text("model_type") == "pixtral" else {"fixed": patches(vision)}
    ),
    "gemma3": _fixed("mm_tokens_per_image"),
    "gemma3n": _fixed("vision_soft_tokens_per_image"),
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
        if isinstance(ratio, (int, float)) and own.maybe("embed_dim", *HIDDEN) is not None:
            own = own.changed(intermediate_size=int(own.whole("embed_dim", *HIDDEN) * ratio))
        cell = images.get("cell")
        return {
            **_sizes(own, gated=gated, rotary=rotary, **names),
            "per_token": (cell / patch) ** 2 if cell else patches(own) / images["fixed"],
            "pixels": channels * patch * patch * own.whole("temporal_patch_size", default=1),
        }
    except (DamagedError, KeyError, TypeError, ValueError, ArithmeticError):
        return None
