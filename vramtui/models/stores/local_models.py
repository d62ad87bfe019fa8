"""The one resolver of names: a path, a folder, or a model in a local store, as the file that describes it."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.models.named_files import SUFFIXES, is_gguf, model_in
from vramtui.models.readers.bounded import path_text
from vramtui.models.stores import hugging_face, local_runners

_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?=[^/]+/)")
LONGEST = 400


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is on this machine.

    Attributes:
        name: as it is called in its store; empty where it was named by its path.
        path: its config.json, GGUF, safetensors or index, or a folder with a config.json or model_index.json.
        store: the store in words; empty for a path.
        assumed: it is only called so: what lies there may be another model.
    """

    name: str
    path: Path
    store: str = ""
    assumed: bool = False


Lookup = Callable[[str, Mapping[str, str]], Path | None]
Listing = Callable[[Mapping[str, str]], Iterator[str]]
STORES: tuple[tuple[str, Lookup, Listing], ...] = (
    ("the Hugging Face cache", hugging_face.find, hugging_face.names),
    ("LM Studio's models", local_runners.find_in_lm_studio, local_runners.names_in_lm_studio),
    ("Ollama's models", local_runners.find_in_ollama, local_runners.names_in_ollama),
)


def find_model(name: str, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> LocalModel | None:
    """The model that `name` means; None where it is neither a model's file nor in a store. No network is used.

    Args:
        name: a path of a file or folder; `owner/name`, with `@revision` or `:quantization` behind it; an address on
            huggingface.co; a name of Ollama's such as `llama3.2:1b`.
        environ: what tells where the stores are (HF_HOME, HF_HUB_CACHE, OLLAMA_MODELS, HOME …); of a job, its own.
        folder: where a relative path starts; the working directory when None.

    Raises:
        UserError: it is there, but holds no model or several that `name` does not tell apart.
    """
    if not name or len(name) > LONGEST or "\0" in name:
        return None
    at_path = _at_path(name, folder)
    if at_path is not None:
        return LocalModel(name="", path=at_path)
    known = os.environ if environ is None else environ
    for wanted in dict.fromkeys((without_address(name).rstrip("/"), name)):
        for store, find, _ in STORES:
            try:
                path = find(wanted, known)
            except OSError:
                continue  # a store that may not be looked into has nothing for this person
            if path is not None:
                return LocalModel(name=wanted, path=path, store=store)
    return None


def without_address(name: str) -> str:
    """`owner/name` of an address on huggingface.co, and what may stand behind it; any other name as it is."""
    match = _ADDRESS.match(name)
    return name if match is None else name[match.end() :].rstrip("/")


def is_model_file(path: str) -> bool:
    """Whether there is a model's own file, or a folder with one, at a path; a preset's file is none."""
    try:
        return bool(path) and _at_path(path, None) is not None
    except UserError:
        return False


def local_models(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The names of all models in the stores, sorted; folders are listed, no model is read."""
    known = os.environ if environ is None else environ
    paths: set[str] = set()
    for _, _, names in STORES:
        with suppress(OSError):
            paths.update(names(known))
    return tuple(sorted(paths))


def not_found(name: str, alike: str | None = None, guess: str = "") -> str:
    """A sentence for a name that no preset has and no store knows, with what to do next.

    Args:
        name: what was asked for.
        alike: the key of a preset whose model has that name's words and size, if there is one.
        guess: asks whether another name was meant; empty where none is like it.
    """
    places = ", ".join(store for store, _, _ in STORES)
    shown_name = printable(name[:LONGEST])
    presets = (
        f"the preset {alike} has a model of that name and size" if alike else "`vramtui presets list` names presets"
    )
    return (
        f"{shown_name} is no preset, no file or folder, and not in {places}{guess}; "
        f"`vramtui estimate {shown_name} --hub` asks huggingface.co for its config and headers, {presets}"
    )


def _at_path(name: str, folder: Path | None) -> Path | None:
    try:
        path = (folder or Path()) / Path(name).expanduser()
        if path.is_dir():
            model = model_in(path)
            if isinstance(model, tuple):
                raise UserError(f"{path_text(path)} holds {len(model)} models, name one: {', '.join(model[:6])}")
            return model
        return path if name.endswith(SUFFIXES) or is_gguf(path) else None
    except (OSError, ValueError, RuntimeError):
        return None
