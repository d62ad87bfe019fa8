"""Resolve a text: a preset, a model's file, a model in a store, a net, a model of the Hub's; nothing is read yet.

The first case that takes the text decides.
"""

import os
import re
from collections.abc import Collection
from enum import Enum, auto
from pathlib import Path

import msgspec

from vramtui.models.named_files import exists, is_folder, is_plain_file, path_named
from vramtui.models.stores.hub_ids import HubConfig, known_by_folder, known_on_hub, known_without_owner
from vramtui.models.stores.local_models import LONGEST, find_model

# How Hugging Face's ids and Ollama's names are written, where nothing is at that path.
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.toml)(?:[@:][\w.-]+)*|[A-Za-z0-9][\w.-]*:[\w.-]+")
NET_NAME = re.compile(r"(?:timm/)?[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)?")
TIMM = "timm/"


class NameKind(Enum):
    """The sorts of things that a text can name."""

    PRESET = auto()
    MODEL = auto()  # a model's file, or a folder with one
    STORED = auto()  # a model in a local store
    NET = auto()  # of torchvision or timm
    SAME_AS_PRESET = auto()  # a model on the Hub that a bundled preset describes
    HUB_CONFIG = auto()  # a model on the Hub whose config is known
    PRESET_FILE = auto()
    REPOSITORY = auto()  # written as a model's id is, and not known here
    SCRIPT = auto()
    FOLDER = auto()  # without a model
    OTHER_FILE = auto()
    UNKNOWN = auto()


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The thing that a text names.

    Attributes:
        kind: which sort of thing.
        name: a preset's key, a model's name as the Hub or its store writes it, a net's name; else the text.
        path: the file or folder, where it is one.
        preset: the key of the bundled preset, of SAME_AS_PRESET.
        config: what is known of its config, of HUB_CONFIG.
    """

    kind: NameKind
    name: str
    path: Path | None = None
    preset: str = ""
    config: HubConfig | None = None


def resolve(text: str, keys: Collection[str] = ()) -> Resolved:
    """Resolve `text`; the kind is UNKNOWN if no case takes it.

    Args:
        text: as a person, a preset or a command line says it.
        keys: of the presets that there are.

    Raises:
        UserError: it is there, but holds no model or several that `text` does not tell apart.
    """
    if text in keys:  # a person's own presets stand above everything
        return Resolved(kind=NameKind.PRESET, name=text)
    model = find_model(text)  # what is on this machine is what would run
    if model is not None:
        kind = NameKind.STORED if model.store else NameKind.MODEL
        return Resolved(kind=kind, name=model.name, path=model.path)
    known = _net(text) or (None if len(text) > LONGEST or exists(text) else _on_hub(text))
    if known is not None:
        return known
    path = path_named(text)
    if ("/" in text or os.sep in text or text.endswith(".toml")) and (exists(path) or not is_repository(str(path))):
        return Resolved(kind=NameKind.PRESET_FILE, name=text, path=path)
    if is_repository(text):
        return Resolved(kind=NameKind.REPOSITORY, name=text)
    kinds = (
        (NameKind.SCRIPT, path.suffix == ".py"),
        (NameKind.FOLDER, is_folder(text)),
        (NameKind.OTHER_FILE, is_plain_file(text)),
    )
    named = next((sort for sort, is_it in kinds if is_it), NameKind.UNKNOWN)
    return Resolved(kind=named, name=text, path=None if named is NameKind.UNKNOWN else path)


def resolve_on_hub(name: str) -> Resolved | None:
    """The model of the Hub's, or the net, that is called so and known without the network; None if none is."""
    return None if len(name) > LONGEST or exists(name) else _net(name) or _on_hub(name)


def resolve_by_folder(path: str) -> Resolved | None:
    """The Hub's model that a folder is called after, for one whose files cannot be read; None if none is."""
    return _of_hub(*known_by_folder(path))


def is_repository(name: str) -> bool:
    """Return whether `name` is written as a model's id is: an owner, a slash and a name, or a name with a tag."""
    return len(name) <= LONGEST and _REPOSITORY.fullmatch(name) is not None


def _net(text: str) -> Resolved | None:
    if ("/" in text and not text.startswith(TIMM)) or not NET_NAME.fullmatch(text):
        return None
    from vramtui.models.readers.torchvision import is_known_net  # noqa: PLC0415 - lists of layers, only for these names

    return Resolved(kind=NameKind.NET, name=text) if is_known_net(text) else None


def _on_hub(text: str) -> Resolved | None:
    return _of_hub(*(known_without_owner if "/" not in text or text.startswith(TIMM) else known_on_hub)(text))


def _of_hub(name: str, known: str | HubConfig | None) -> Resolved | None:
    if known is None:
        return None
    if isinstance(known, str):
        return Resolved(kind=NameKind.SAME_AS_PRESET, name=name, preset=known)
    return Resolved(kind=NameKind.HUB_CONFIG, name=name, config=known)
