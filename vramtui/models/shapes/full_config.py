"""A config with the keys that its file leaves out, as transformers fills them in (5.23)."""

from functools import cache, lru_cache
from importlib import resources
from typing import Any

import msgspec

from vramtui.models.families.caches import LISTS, PATTERNS

# What else decides the kinds of layers, where a config has no list of them.
KINDS = (
    *LISTS, *PATTERNS, "full_attention_interval", "block_types", "no_rope_layers", "attn_type_list",
    "hybrid_override_pattern", "compress_ratios", "linear_attn_config",
    "sparse_attention_config",
)  # fmt: skip
# Names in older public files that transformers reads without listing them as aliases (BLOOM, Falcon).
OLDER_NAMES = {"n_embed": "hidden_size"}
# Parts that transformers makes of defaults where a config leaves them out.
ALWAYS = ("vision_config",)


class TypeDefaults(msgspec.Struct, frozen=True):
    """Defaults of transformers for the keys of a type.

    Attributes:
        keys: the default of each key that can shape a tensor, as its class has it.
        derived: of keys that its class has no default for, or works out when it is made: a value, or an expression
            behind `=`. It goes before `keys` where tensors are asked for.
        aliases: other names of keys.
        parts: the type of each part, and the keys in which it differs from that type's defaults; None in place of those
            where it has the part only if a config says so.
        free: the parts whose type a config chooses.
        period: the kinds that its layers repeat where the config does not list them.
    """

    keys: dict[str, Any] = {}
    derived: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    parts: dict[str, tuple[str, dict[str, Any] | None]] = {}
    free: tuple[str, ...] = ()
    period: tuple[str, ...] = ()


@cache
def _types() -> dict[str, msgspec.Raw]:
    """Every type, as `python -m benchmarks.shapes` writes them, each decoded when it is asked for."""
    text = resources.files("vramtui.models.shapes").joinpath("configs.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw])


@lru_cache(maxsize=1024)
def defaults_of(kind: str) -> TypeDefaults:
    """The defaults of a type; empty if transformers does not have it."""
    raw = _types().get(kind)
    return TypeDefaults() if raw is None else msgspec.json.decode(raw, type=TypeDefaults)


def filled_in(values: dict[str, Any], kind: str, *, every_part: bool = False) -> dict[str, Any]:
    """`values` of a config of type `kind` and of its parts, each with its type and the keys that it leaves out.

    Args:
        values: as decoded.
        kind: its `model_type`.
        every_part: whether parts that are left out are made of their defaults too.
    """
    known = defaults_of(kind)
    if kind not in _types():
        own = {key: part for key, part in values.items() if isinstance(part, dict)}
        types = {key: part["model_type"] for key, part in own.items() if isinstance(part.get("model_type"), str)}
        return values | {key: filled_in(own[key], named) for key, named in types.items()}
    given = {key: value for key, value in values.items() if value is not None}
    aliases = OLDER_NAMES | known.aliases
    renamed = {aliases[key]: value for key, value in given.items() if key in aliases}
    # A default goes by the name that transformers 4 wrote, where 5 writes another.
    renamed |= {key: given[aliases[key]] for key in known.keys if key not in given and aliases.get(key) in given}
    whole = known.keys | renamed | values | {key: renamed[key] for key in renamed if key not in given}
    for key, value in known.keys.items():
        if whole.get(key) is None and key not in values:
            whole[key] = value
    whole["model_type"] = kind
    layers = whole.get("num_hidden_layers")
    if (
        known.period
        and isinstance(layers, int)
        and 0 < layers <= len(known.period) * 1024
        and not any(values.get(name) is not None for name in KINDS)
    ):
        whole["layer_types"] = (list(known.period) * (layers // len(known.period) + 1))[:layers]
    for key, (usual, _) in known.parts.items():
        is_made = every_part or (key in ALWAYS and key not in known.free)
        part = values.get(key, {} if is_made else None)
        if usual and isinstance(part, dict):
            named = part.get("model_type")
            chosen = named if key in known.free and isinstance(named, str) else usual
            whole[key] = filled_in(part, chosen) | {"model_type": chosen}
    return whole


def parts_by_default(values: dict[str, Any]) -> list[str]:
    """The parts that `filled_in` makes only of defaults, as a config of `values` does not have them."""
    known = defaults_of(str(values.get("model_type")))
    return [
        key for key in ALWAYS if key in known.parts and key not in known.free and not isinstance(values.get(key), dict)
    ]


def text_type(kind: str) -> str:
    """The type of the part that reads words, of a type of model of several parts."""
    return defaults_of(kind).parts.get("text_config", (kind,))[0]
