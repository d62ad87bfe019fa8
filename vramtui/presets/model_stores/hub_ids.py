"""Names on the Hugging Face Hub that are known without the network: those whose models a bundled preset describes, and
those whose configs stand in `hub_configs.json`.
"""

from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from vramtui.presets.model_stores.local_models import URL
from vramtui.presets.toml import reader as toml


class HubConfig(msgspec.Struct, frozen=True):
    """What a config.json on the Hub says of sizes.

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
    plain = URL.sub("", name).rstrip("/")
    preset = names_on_hub().get(plain.lower())
    if preset is not None:
        return preset
    return configs_on_hub().get(plain.lower(), (plain, None))


@lru_cache(1)
def names_on_hub() -> dict[str, tuple[str, str]]:
    """By the name in lower case: the name as the Hub writes it, and the key of the bundled preset."""
    text = files("vramtui.presets.model_stores").joinpath("hub_ids.toml").read_text(encoding="utf-8")
    return {name.lower(): (name, key) for key, names in toml.loads(text).items() for name in names}


@lru_cache(1)
def configs_on_hub() -> dict[str, tuple[str, HubConfig]]:
    """By the name in lower case: the name as the Hub writes it, and its config."""
    text = files("vramtui.presets.model_stores").joinpath("hub_configs.json").read_bytes()
    rows = msgspec.json.decode(text, type=tuple[HubConfig, ...])
    return {name.lower(): (name, row) for row in rows for name in row.names}
