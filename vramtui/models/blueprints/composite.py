"""Models of several parts: the one that reads words, towers for images and sound, and what joins them."""

from functools import cache
from typing import Any

import msgspec

from vramtui.models.blueprints.blueprint import Blueprint, add_tensors, parse, read_blueprints
from vramtui.models.blueprints.scope import Scope, whole_number
from vramtui.models.blueprints.staged_towers import STAGED
from vramtui.models.families.tensor_list import TensorList
from vramtui.models.readers.bounded import Damaged

JOINTS, HEARD, IMAGES = (
    read_blueprints("layers", "joints"),
    read_blueprints("sound_tokens"),
    read_blueprints("image_tokens"),
)
# A part without a type is counted by what it belongs to.
TOWERS = {"": "", **read_blueprints("layers", "sound", "images"), **STAGED}
SUFFIX = "_config"
TOWER_SIZES = {
    "hidden_size": "h", "num_hidden_layers": "n", "num_attention_heads": "heads", "intermediate_size": "i",
}  # fmt: skip
# Types of towers whose queries and keys are turned by their place.
ROTARY = ("qwen", "pixtral", "gemma4", "glm4v", "kimi", "llama4", "mimo")
ROTARY_SOUND = ("glmasr", "voxtral_realtime")


@cache
def _blueprint(kind: str, *, joint: bool) -> Blueprint:
    texts = JOINTS if joint else TOWERS
    return parse(texts[kind], texts)


def joins(kind: str) -> bool:
    """Whether a type of model is one of several parts that is known."""
    return kind in JOINTS


class Joined(msgspec.Struct, frozen=True):
    """Whether every part is known, and how many tokens an image takes."""

    complete: bool
    images: dict[str, int] | None
    tower: dict[str, Any] | None = None
    audio_tower: dict[str, Any] | None = None


def add_parts(tensors: TensorList, values: dict[str, Any], text: str) -> Joined:
    """Towers and what joins them to the part under the key `text`.

    Args:
        tensors: get the tensors, in the place of towers.
        values: the whole config, filled in.
        text: the key of the part that reads words; empty where it is the config itself.

    Raises:
        Damaged: a key that is needed is missing or wrong.
    """
    tensors.place = "tower"
    root = Scope(values)
    complete = True
    for key, part in values.items():
        if not isinstance(part, dict) or not isinstance(part.get("model_type"), str):
            continue
        name = key.removesuffix(SUFFIX)
        scope = root.parts[name] = Scope(part, {"root": root}, f"{key}.")
        if key == text:
            root.parts["text"] = scope
        else:
            complete &= _add_tower(tensors, scope, name)
    root.parts.setdefault("text", root)
    kind = values.get("model_type")
    tensors.prefix = "projector."
    if isinstance(kind, str) and kind in JOINTS:
        add_tensors(tensors, _blueprint(kind, joint=True), root)
    else:
        complete = False
    tensors.prefix = ""
    images = _image_tokens(root)
    gated = {
        name for name in ("vision", "audio") for group in tensors.groups() if group.name.startswith(f"{name}.gate")
    }
    seen = _tower_shape(root.parts.get("vision"), images, gated="vision" in gated)
    return Joined(complete, images, seen, _audio_shape(root, gated="audio" in gated))


def _audio_shape(root: Scope, *, gated: bool) -> dict[str, Any] | None:
    """As `TowerShape` has it; None where it is of another kind than Whisper's encoder."""
    audio, rules = root.parts.get("audio"), HEARD.get(str(root.values.get("model_type")), "")
    if audio is None or not rules:
        return None
    try:
        return {
            **{key: audio.evaluate(name) for key, name in TOWER_SIZES.items()},
            **{name: root.evaluate(rule) for name, rule in (line.split(" = ") for line in rules.splitlines())},
            "gated_mlp": gated,
            "rotary": str(audio.values.get("model_type")).startswith(ROTARY_SOUND),
            "pixels": 2 * audio.evaluate("get(num_mel_bins, 80)"),
        }
    except Damaged:
        return None


def _tower_shape(vision: Scope | None, images: dict[str, int] | None, *, gated: bool) -> dict[str, Any] | None:
    """As `TowerShape` has it; None where one of its sizes is not known."""
    if vision is None or images is None:
        return None
    try:
        patch, channels = vision.evaluate("p"), vision.evaluate("c")
        cell = images.get("cell")
        return {
            **{key: vision.evaluate(name) for key, name in TOWER_SIZES.items()},
            "gated_mlp": gated,
            "rotary": str(vision.values.get("model_type")).startswith(ROTARY),
            "per_token": (cell / patch) ** 2 if cell else vision.evaluate("grid") / images["fixed"],
            "pixels": channels * patch * patch * vision.evaluate("get(temporal_patch_size, 1)"),
        }
    except (Damaged, KeyError, TypeError, ZeroDivisionError):
        return None


def _image_tokens(root: Scope) -> dict[str, int] | None:
    """As `ImageTokens` has it; None where it is not known."""
    vision = root.parts.get("vision")
    if vision is None:
        return None
    kind, tower = root.values.get("model_type"), vision.values.get("model_type")
    rules = IMAGES.get(f"{kind} of {tower}") or IMAGES.get(f"{kind}", "")
    named = (line.split(" = ") for line in rules.splitlines())
    return {name: whole_number(root.evaluate(rule), "the tokens of an image") for name, rule in named} or None


def _add_tower(tensors: TensorList, scope: Scope, name: str) -> bool:
    """A tower and those inside of it; whether all are known."""
    complete = True
    for key, part in list(scope.values.items()):
        if isinstance(part, dict) and isinstance(part.get("model_type"), str):
            inner = f"{name}.{key.removesuffix(SUFFIX)}"
            complete &= _add_tower(tensors, Scope(part, scope.parts, f"{scope.inside}{key}."), inner)
    kind = scope.values["model_type"]
    if kind not in TOWERS:
        return False
    tensors.prefix = f"{name}."
    add_tensors(tensors, _blueprint(kind, joint=False), scope)
    return complete
