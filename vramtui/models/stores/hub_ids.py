"""Names on the Hugging Face Hub that are known without the network: those whose models a bundled preset describes, and
those whose configs stand in `hub_configs.json`.
"""

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import msgspec

from vramtui.core.base import toml
from vramtui.models.stores.local_models import without_address

# Owners that publish others' weights again under the same name, tensor by tensor the same shapes.
MIRRORS = frozenset({"unsloth", "nousresearch"})
# How the Hub's cache calls a repository's folder: `models--OWNER--NAME/snapshots/COMMIT`.
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)")


class HubConfig(msgspec.Struct, frozen=True):
    """Sizes in a config.json on the Hub.

    Attributes:
        names: models with this very config.
        parameters: of the module that transformers builds of it, or as its card has it where transformers has none.
        config: the keys that shape it.
    """

    names: tuple[str, ...]
    parameters: int
    config: dict[str, Any]


def known_on_hub(name: str) -> tuple[str, str | HubConfig | None]:
    """`owner/name` as the Hub writes it, and the key of the bundled preset of this very model, or its config; None
    where neither is known.

    Args:
        name: `owner/name`, in letters of either case, or its address on huggingface.co.
    """
    plain = without_address(name).rstrip("/")
    known = names_on_hub().get(plain.lower()) or configs_on_hub().get(plain.lower())
    if known is not None:
        return known
    owner, _, tail = plain.partition("/")
    original = _by_tail().get(tail.lower()) if owner.lower() in MIRRORS else None
    return plain, original[1] if original is not None else None


def known_without_owner(name: str) -> tuple[str, str | HubConfig | None]:
    """The known config of a name without owner, `Qwen3-14B`, where every owner of that name means the same model."""
    return _by_tail().get(name.lower(), (name, None))


def known_names() -> tuple[str, ...]:
    """Every name that is known here as the Hub writes it, and without its owner where that is enough."""
    whole = [name for name, _ in (*names_on_hub().values(), *configs_on_hub().values())]
    return (*whole, *(name.partition("/")[2] for name, _ in _by_tail().values()))


def known_by_folder(path: str) -> tuple[str, str | HubConfig | None]:
    """The known config for the name of a folder, `/data/models/Qwen3-8B` or one of the Hub's cache.

    What lies in it may be another model all the same: this is for folders whose files cannot be read.
    """
    cached = _CACHED.search(path)
    if cached is not None:
        return known_on_hub(f"{cached[1]}/{cached[2]}")
    return _by_tail().get(PurePath(path).name.lower(), (path, None))


@lru_cache(1)
def names_on_hub() -> dict[str, tuple[str, str]]:
    """The name as the Hub writes it and the key of the bundled preset, by the name in lower case."""
    text = files("vramtui.models.stores").joinpath("hub_ids.toml").read_text(encoding="utf-8")
    return {name.lower(): (name, key) for key, names in toml.loads(text).items() for name in names}


@lru_cache(1)
def configs_on_hub() -> dict[str, tuple[str, HubConfig]]:
    """The name as the Hub writes it and its config, by the name in lower case."""
    text = files("vramtui.models.stores").joinpath("hub_configs.json").read_bytes()
    rows = msgspec.json.decode(text, type=tuple[HubConfig, ...])
    return {name.lower(): (name, row) for row in rows for name in row.names}


@lru_cache(1)
def _by_tail() -> dict[str, tuple[str, str | HubConfig]]:
    """These pairs by the name without its owner in lower case, where all owners of a name mean one model."""
    tails: dict[str, list[tuple[str, str | HubConfig]]] = {}
    everything: dict[str, tuple[str, str | HubConfig]] = {**names_on_hub(), **configs_on_hub()}
    for lower, known in everything.items():
        tails.setdefault(lower.partition("/")[2], []).append(known)
    return {tail: same[0] for tail, same in tails.items() if all(one[1] is same[0][1] for one in same)}
