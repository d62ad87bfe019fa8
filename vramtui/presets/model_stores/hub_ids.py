"""Names on the Hugging Face Hub whose models a bundled preset describes, so that they are known without the network."""

from functools import lru_cache
from importlib.resources import files

from vramtui.presets.model_stores.local_models import URL
from vramtui.presets.toml import reader as toml


def known_on_hub(name: str) -> tuple[str, str | None]:
    """`owner/name` as the Hub writes it, and the key of the bundled preset of this very model; None where none is.

    Args:
        name: `owner/name`, in letters of either case, or its address on huggingface.co.
    """
    plain = URL.sub("", name).rstrip("/")
    return names_on_hub().get(plain.lower(), (plain, None))


@lru_cache(1)
def names_on_hub() -> dict[str, tuple[str, str]]:
    """By the name in lower case: the name as the Hub writes it, and the key of the bundled preset."""
    text = files("vramtui.presets.model_stores").joinpath("hub_ids.toml").read_text(encoding="utf-8")
    return {name.lower(): (name, key) for key, names in toml.loads(text).items() for name in names}
