"""Resolve a text: a preset, a model's file, a model in a store, a net, a model of the Hub's; nothing is read yet.

The cases are tried in the order of `CASES`; the first that takes the text decides, and says why.
"""

import os
import re
from collections.abc import Callable, Collection
from enum import Enum
from pathlib import Path
from typing import TypeAlias

import msgspec

from vramtui.models.named_files import exists, is_folder, is_plain_file, path_named
from vramtui.models.stores.hub_ids import HubConfig, known_by_folder, known_on_hub, known_without_owner
from vramtui.models.stores.local_models import LONGEST, find_model

# How Hugging Face's ids and Ollama's names are written, where nothing is at that path.
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.toml)(?:[@:][\w.-]+)*|[A-Za-z0-9][\w.-]*:[\w.-]+")
NET_NAME = re.compile(r"(?:timm/)?[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)?")
TIMM = "timm/"


class NameKind(Enum):
    """The sorts of things that a text can name; the value says it in words."""

    PRESET = "a preset of that name"
    MODEL = "a model's file, or a folder with one"
    STORED = "a model in a local store"
    NET = "a net of torchvision's or timm's"
    SAME_AS_PRESET = "a model of the Hub's that a bundled preset describes"
    HUB_CONFIG = "a model of the Hub's whose config is known"
    PRESET_FILE = "a preset's file"
    REPOSITORY = "written as a model's id is, and not known here"
    SCRIPT = "a script"
    FOLDER = "a folder without a model"
    OTHER_FILE = "a file of something else than a model"
    UNKNOWN = "nothing that is known"


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The thing that a text names.

    Attributes:
        kind: which sort of thing.
        name: a preset's key, a model's name as the Hub or its store writes it, a net's name; else the text.
        path: the file or folder, where it is one.
        preset: the key of the bundled preset, of SAME_AS_PRESET.
        config: what is known of its config, of HUB_CONFIG.
        why: the reason in words.
    """

    kind: NameKind
    name: str
    path: Path | None = None
    preset: str = ""
    config: HubConfig | None = None
    why: str = ""


def resolve(text: str, keys: Collection[str] = ()) -> Resolved:
    """Resolve `text`; the kind is UNKNOWN if no case takes it.

    Args:
        text: as a person, a preset or a command line says it.
        keys: of the presets that there are.

    Raises:
        UserError: it is there, but holds no model or several that `text` does not tell apart.
    """
    return next(filter(None, (case(text, keys) for case in CASES)), _as(NameKind.UNKNOWN, text))


def resolve_on_hub(name: str) -> Resolved | None:
    """The model of the Hub's, or the net, that is called so and known without the network; None if none is."""
    if len(name) > LONGEST or exists(name):
        return None
    return _net(name, ()) or _on_hub(name, ())


def resolve_by_folder(path: str) -> Resolved | None:
    """The Hub's model that a folder is called after, for one whose files cannot be read; None if none is."""
    return _of_hub(*known_by_folder(path))


def is_repository(name: str) -> bool:
    """Return whether `name` is written as a model's id is: an owner, a slash and a name, or a name with a tag."""
    return len(name) <= LONGEST and _REPOSITORY.fullmatch(name) is not None


def _as(kind: NameKind, name: str, path: Path | None = None) -> Resolved:
    return Resolved(kind=kind, name=name, path=path, why=kind.value)


def _preset_key(text: str, keys: Collection[str]) -> Resolved | None:
    return _as(NameKind.PRESET, text) if text in keys else None


def _local_model(text: str, _keys: Collection[str]) -> Resolved | None:
    model = find_model(text)
    if model is None:
        return None
    if not model.store:
        return _as(NameKind.MODEL, "", model.path)
    return Resolved(kind=NameKind.STORED, name=model.name, path=model.path, why=f"in {model.store}")


def _net(text: str, _keys: Collection[str]) -> Resolved | None:
    if ("/" in text and not text.startswith(TIMM)) or not NET_NAME.fullmatch(text):
        return None
    from vramtui.models.readers.torchvision import is_known_net  # noqa: PLC0415 - lists of layers, for such names alone

    return _as(NameKind.NET, text) if is_known_net(text) else None


def _on_hub(text: str, _keys: Collection[str]) -> Resolved | None:
    if len(text) > LONGEST or exists(text):
        return None
    return _of_hub(*(known_without_owner if "/" not in text or text.startswith(TIMM) else known_on_hub)(text))


def _of_hub(name: str, known: str | HubConfig | None) -> Resolved | None:
    if known is None:
        return None
    if isinstance(known, str):
        why = f"the preset {known} describes this very model"
        return Resolved(kind=NameKind.SAME_AS_PRESET, name=name, preset=known, why=why)
    return Resolved(kind=NameKind.HUB_CONFIG, name=name, config=known, why=NameKind.HUB_CONFIG.value)


def _preset_file(text: str, _keys: Collection[str]) -> Resolved | None:
    if "/" not in text and os.sep not in text and not text.endswith(".toml"):
        return None
    path = path_named(text)
    return _as(NameKind.PRESET_FILE, text, path) if exists(path) or not is_repository(str(path)) else None


def _repository(text: str, _keys: Collection[str]) -> Resolved | None:
    return _as(NameKind.REPOSITORY, text) if is_repository(text) else None


def _script(text: str, _keys: Collection[str]) -> Resolved | None:
    path = path_named(text)
    return _as(NameKind.SCRIPT, text, path) if path.suffix == ".py" else None


def _folder(text: str, _keys: Collection[str]) -> Resolved | None:
    return _as(NameKind.FOLDER, text, path_named(text)) if is_folder(text) else None


def _other_file(text: str, _keys: Collection[str]) -> Resolved | None:
    return _as(NameKind.OTHER_FILE, text, path_named(text)) if is_plain_file(text) else None


Case: TypeAlias = Callable[[str, Collection[str]], Resolved | None]
CASES: tuple[Case, ...] = (
    _preset_key,  # a person's own presets stand above everything
    _local_model,  # what is on this machine is what would run
    _net,
    _on_hub,
    _preset_file,
    _repository,
    _script,
    _folder,
    _other_file,
)
