"""Models for images and for sound that are no decoders: encoders, nets of stages, detectors, recognisers of speech.

Their tensors stand in the text files named below, in the language of `blueprint.py`. There `task` is the architecture
that a config names, `tasks` those whose heads are written down, and `labels` how many classes there are. What such a
model holds while it runs is taken from a stream of `tokens` of the names below; a net of stages has those of a stream
as large as all its stages together, and is said to be a guess.
"""

from contextlib import suppress
from functools import cache
from typing import Any

import msgspec

from vramtui.models.blueprints.blueprint import Blueprint, add_tensors, parse, read_blueprints
from vramtui.models.blueprints.scope import Scope, whole_number
from vramtui.models.blueprints.vision import vision_table
from vramtui.models.families.family import Family
from vramtui.models.families.keys import Keys
from vramtui.models.families.tensor_list import CacheList, TensorList
from vramtui.models.readers.bounded import Damaged

NETS = read_blueprints("layers", "vision_models", "staged_models", "picture_models", "speech_models")
# What may be a part of them besides.
TOWERS = {**read_blueprints("layers", "sound", "images"), **NETS}
# Sizes of the stream, each with the name that a blueprint gives it.
STREAM = {
    "hidden_size": "h",
    "num_hidden_layers": "n",
    "num_attention_heads": "heads",
    "intermediate_size": "i",
}
SUFFIX = "_config"
# Torchvision's nets of a type: the same layers.
TWINS = {
    "convnext": ("convnext_tiny", "convnext_small", "convnext_base", "convnext_large"),
    "resnet": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    "swin": ("swin_t", "swin_s", "swin_b"),
}
USUAL_CLASSES = 1000
PLAIN = Family(norm=2, gated=False, bias=True, mlp_bias=True, tied=True)


class NetShape(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is no decoder.

    Attributes:
        keys: its config with the sizes of its stream.
        tensors: every tensor.
        caches: what its decoder keeps, where it has one.
        exact: whether the head of its task is written down.
        staged: whether its stages differ in size, so that the stream stands for all of them.
    """

    keys: Keys
    tensors: TensorList
    caches: CacheList
    exact: bool
    staged: bool


def is_net(kind: str) -> bool:
    """Whether a type of model is one of these."""
    return kind in NETS


def read_net(keys: Keys) -> NetShape:
    """The tensors and the stream of a model of a type that `is_net`.

    Raises:
        Damaged: a key that is needed is missing or wrong.
    """
    task = next((str(name) for name in keys.items("architectures")), "")
    scope = Scope({**keys.values, "task": task})
    for key, part in keys.values.items():
        if isinstance(part, dict):
            scope.parts[key.removesuffix(SUFFIX)] = _part(part, scope, f"{key}.")
    tensors, caches = TensorList(), CacheList()
    add_tensors(tensors, _blueprint(keys.text("model_type")), scope, caches, _blueprint)
    tasks = str(scope.evaluate("get(tasks, '')")).split()
    return NetShape(
        keys=keys.changed(**_stream(scope)),
        tensors=tensors,
        caches=caches,
        exact=not task or any(task.endswith(name) for name in tasks),
        staged=bool(scope.evaluate("get(staged, False)")),
    )


def twin_of(net: NetShape, parameters: int) -> dict[str, Any] | None:
    """The `[model]` table of torchvision's net of the same type with as many parameters; None where there is none.

    Args:
        net: as `read_net` found it.
        parameters: how many it has, its classes included.
    """
    last = next((one for one in net.tensors.groups() if one.name == "classifier" and len(one.shape) > 1), None)
    if last is None:
        return None
    labels, width = last.shape
    size = net.keys.values.get("image_size")
    pixels = size if isinstance(size, int) else None
    for name in TWINS.get(net.keys.text("model_type"), ()):
        table = vision_table(name, image_size=pixels)
        if table is not None and table.get("parameters") == parameters + (USUAL_CLASSES - labels) * (width + 1):
            return vision_table(name, classes=labels, image_size=pixels)
    return None


def _stream(scope: Scope) -> dict[str, Any]:
    """Sizes as a decoder's config names them; the classes stand for its words."""
    sizes: dict[str, Any] = {}
    for key, name in STREAM.items():
        sizes[key] = max(1, whole_number(scope.evaluate(name), key))
    sizes["vocab_size"] = whole_number(scope.evaluate("get(vocab_size, labels)"), "vocab_size")
    with suppress(Damaged):
        sizes["max_position_embeddings"] = max(1, whole_number(scope.evaluate("tokens"), "tokens"))
    return sizes


def _part(values: dict[str, Any], root: Scope, inside: str) -> Scope:
    """A part of it with its own parts; its task is to be one."""
    scope = Scope({**values, "task": "Backbone"}, {"root": root}, inside)
    for key, part in values.items():
        if isinstance(part, dict):
            scope.parts[key.removesuffix(SUFFIX)] = _part(part, root, f"{inside}{key}.")
    return scope


@cache
def _blueprint(kind: str) -> Blueprint:
    if kind not in TOWERS:
        raise Damaged(f"has a part of the type {kind[:40]!r}, which is not known", is_sound=True)
    return parse(TOWERS[kind], TOWERS)
