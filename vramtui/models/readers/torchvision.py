"""Nets for images by the names that torchvision and timm give them, and timm's config.json.

Convolutional nets and Swin are the lists of layers in `torchvision_nets.json`, made from torchvision 0.28. Names of
timm 1.0 are included if the number of parameters is the same. Plain vision transformers follow from their name.
"""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.core.base.late import late
from vramtui.models.readers.bounded import DamagedError

if TYPE_CHECKING:
    from vramtui.models.families.keys import Fields, Table

# Lists of layers need neither.
keys_of = late("vramtui.models.families.keys:Keys")
vit = late("vramtui.models.families.encoders:vit")

SIZES = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}
_TRANSFORMER = re.compile(r"(?:vit|deit)_(tiny|small|base|large|huge)_patch(\d{1,2})_(\d{2,4})")
_TORCHVISION = re.compile(r"vit_([blh])_(\d{1,2})")
_LETTERS = {"b": "base", "l": "large", "h": "huge"}
_PREFIX = "timm/"
SIZES_OF_CLASSES = {"out_features", "out_channels"}


@lru_cache(1)
def _timm() -> dict[str, str]:
    """Timm's names of torchvision's nets with as many parameters."""
    names: dict[str, str] = json.loads(Path(__file__).with_name("timm_names.json").read_text(encoding="utf-8"))
    return names


@lru_cache(1)
def _nets() -> dict[str, msgspec.Raw]:
    """The JSON of each net: all of them read take 4 MB."""
    text = Path(__file__).with_name("torchvision_nets.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw])


def net_names() -> tuple[str, ...]:
    """Every name of a list of layers, torchvision's and timm's."""
    return (*_nets(), *_timm())


def is_known_net(name: str) -> bool:
    plain = _plain(name)
    return (
        any(pattern.fullmatch(plain) for pattern in (_TRANSFORMER, _TORCHVISION))
        or _timm().get(plain, plain) in _nets()
    )


def _plain(name: str) -> str:
    """A net's name without `timm/` before it and the tag of its weights behind it."""
    return name.removeprefix(_PREFIX).partition(".")[0]


def vision_table(name: str, *, classes: int = 1000, image_size: int | None = None) -> "Table | None":
    """The `[model]` table of the net called so, as torchvision or timm write it, `timm/` before and a tag of weights
    behind it allowed, with pixels of a side, usual ones where None; None if none is known.
    """
    plain = _plain(name)
    match = _TRANSFORMER.fullmatch(plain) or _TORCHVISION.fullmatch(plain)
    if match is not None:
        size, patch, pixels = (*match.groups(), "224")[:3]
        width, blocks, heads = SIZES[_LETTERS.get(size, size)]
        config = {
            "hidden_size": width, "num_hidden_layers": blocks, "num_attention_heads": heads,
            "intermediate_size": 4 * width, "image_size": (image_size or int(pixels)), "patch_size": int(patch),
            "num_channels": 3, "hidden_act": "gelu", "num_labels": classes,
        }  # fmt: skip
        table: Table = vit(keys_of(config), "ViTForImageClassification")
        return table
    text = _nets().get(_timm().get(plain, plain))
    if text is None:
        return None
    net: dict[str, Any] = msgspec.json.decode(text)
    layers = net["layers"]
    size = net["image_size"]
    if isinstance(size, list):
        shape = [3, *(size if image_size is None else [image_size, image_size])]
        return {"kind": "sequential", "input_shape": shape, "layers": layers, "parameters": net["parameters"]}
    last = max(at for at, layer in enumerate(layers) if SIZES_OF_CLASSES & layer.keys())
    key = next(iter(SIZES_OF_CLASSES & layers[last].keys()))
    exact = {"parameters": net["parameters"]} if layers[last][key] == classes else {}
    layers[last][key] = classes
    pixels = image_size or size
    return {"kind": "sequential", "input_shape": [3, pixels, pixels], "layers": layers, **exact}


def timm_table(config: "Fields") -> "tuple[str, Table]":
    """The architecture that a timm config.json names, and its `[model]` table. Raises DamagedError if it is not one of
    the nets that are known.
    """
    name = config.text("architecture", "")
    size = config.table("pretrained_cfg").values.get("input_size")
    pixels = size[-1] if isinstance(size, list) and size and isinstance(size[-1], int) else None
    table = vision_table(name, classes=config.whole("num_classes", 1000) or 1000, image_size=pixels)
    if table is None:
        raise DamagedError(f"is of timm's {name[:60]!r}, which is not known", is_sound=True)
    return name, table
