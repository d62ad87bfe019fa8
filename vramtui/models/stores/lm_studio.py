"""LM Studio's store: models/PUBLISHER/NAME/*.gguf, or a folder with a config.json and safetensors.

Source: LM Studio's documentation, "Import models": the folder's layout; `~/.lmstudio-home-pointer` names another home.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.models.stores.folders import gguf_called, model_in
from vramtui.models.stores.hugging_face import home, parsed

POINTER, LONGEST_PATH = ".lmstudio-home-pointer", 4096


def find(name: str, environ: Mapping[str, str]) -> Path | None:
    """The model of `publisher/name`, its GGUF by `:Q4_K_M` where there are several.

    Raises:
        UserError: there are several GGUF files, or none of that quantization.
    """
    said = parsed(name)
    if said is None or said[1] or "/" not in said[0]:
        return None
    repository, _, tag = said
    for place in _folders(environ):
        folder = place / repository
        if not folder.is_dir():
            continue
        if tag:
            return gguf_called(folder, tag)
        found = model_in(folder)
        if isinstance(found, tuple):
            one = Path(found[0]).stem
            raise UserError(f"{repository} has {len(found)} models in LM Studio; name one as {repository}:{one}")
        return found
    return None


def names(environ: Mapping[str, str]) -> Iterator[str]:
    """Every model's publisher and name."""
    for place in _folders(environ):
        yield from (f"{folder.parent.name}/{folder.name}" for folder in place.glob("*/*") if folder.is_dir())


def _folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    own = home(environ)
    pointer = own / POINTER
    moved: tuple[Path, ...] = ()
    if pointer.is_file():
        with pointer.open("rb") as file:
            text = file.read(LONGEST_PATH).decode("utf-8", "replace").strip()
        moved = (Path(text) / "models",) if text and "\0" not in text else ()
    return (*moved, own / ".lmstudio" / "models", own / ".cache" / "lm-studio" / "models")
