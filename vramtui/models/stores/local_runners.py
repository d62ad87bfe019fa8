"""Models that LM Studio and Ollama keep on this machine.

LM Studio: models/PUBLISHER/NAME/*.gguf, or a folder with a config.json and safetensors (its documentation, "Import
models": the folder's layout; `~/.lmstudio-home-pointer` names another home).

Ollama: a manifest for each tag, which names its GGUF by digest (ollama 0.12, server/modelpath.go: the folders,
types/model/name.go: names, and the media types of a manifest).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import CONFIG
from vramtui.models.named_files import gguf_called, model_in, path_named
from vramtui.models.readers.bounded import path_text, read_plain
from vramtui.models.stores.hugging_face import PART, home, parsed

POINTER, LONGEST_PATH = ".lmstudio-home-pointer", 4096


def find_in_lm_studio(name: str, environ: Mapping[str, str]) -> Path | None:
    """The model of `publisher/name`, its GGUF by `:Q4_K_M` where there are several.

    Raises:
        UserError: there are several GGUF files, or none of that quantization.
    """
    said = parsed(name)
    if said is None or said[1] or "/" not in said[0]:
        return None
    repository, _, tag = said
    for place in _lm_studio_folders(environ):
        folder = place / repository
        if not folder.is_dir():
            continue
        if tag:
            return gguf_called(folder, tag)
        model = model_in(folder)
        if isinstance(model, tuple):
            one = Path(model[0]).stem
            raise UserError(f"{repository} has {len(model)} models in LM Studio; name one as {repository}:{one}")
        return model
    return None


def names_in_lm_studio(environ: Mapping[str, str]) -> Iterator[str]:
    """Every model's publisher and name."""
    for place in _lm_studio_folders(environ):
        yield from (f"{folder.parent.name}/{folder.name}" for folder in place.glob("*/*") if folder.is_dir())


def _lm_studio_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    own = home(environ)
    pointer = own / POINTER
    moved: tuple[Path, ...] = ()
    if pointer.is_file():
        with pointer.open("rb") as file:
            text = file.read(LONGEST_PATH).decode("utf-8", "replace").strip()
        moved = (Path(text) / "models",) if text and "\0" not in text else ()
    return (*moved, own / ".lmstudio" / "models", own / ".cache" / "lm-studio" / "models")


REGISTRY, OWNER, TAG = "registry.ollama.ai", "library", "latest"
MODEL = "application/vnd.ollama.image.model"
# Where the installer's service keeps its models: the folder of the user it runs as.
OF_SERVICE = (Path("/usr/share/ollama/.ollama/models"), Path("/var/lib/ollama/models"))
_NAME = re.compile(rf"(?:({PART}(?::\d+)?)/)?(?:({PART})/)?({PART})(?::({PART}))?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class _Layer(msgspec.Struct, frozen=True):
    media_type: str = msgspec.field(name="mediaType", default="")
    digest: str = ""


class _Manifest(msgspec.Struct, frozen=True):
    layers: tuple[_Layer, ...] = ()


def find_in_ollama(name: str, environ: Mapping[str, str]) -> Path | None:
    """The GGUF of `model:tag`, `owner/model:tag` or `host/owner/model:tag`; `latest` where no tag is said.

    Raises:
        UserError: its manifest is damaged, or the file that it names is missing.
    """
    said = _NAME.fullmatch(name)
    if said is None or ".." in name:
        return None
    host, owner, model, tag = said.groups()
    if host and not owner:
        host, owner = None, host
    inside = Path(host or REGISTRY, owner or OWNER, model, tag or TAG)
    for folder in _ollama_folders(environ):
        manifest = folder / "manifests" / inside
        if manifest.is_file():
            return _model_of(manifest, folder / "blobs")
    return None


def names_in_ollama(environ: Mapping[str, str]) -> Iterator[str]:
    """Every tag, as `ollama list` names it."""
    for folder in _ollama_folders(environ):
        for manifest in (folder / "manifests").glob("*/*/*/*"):
            host, owner, model, tag = manifest.parts[-4:]
            start = "" if host == REGISTRY else f"{host}/"
            yield f"{start}{'' if not start and owner == OWNER else f'{owner}/'}{model}:{tag}"


def _ollama_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    said = environ.get("OLLAMA_MODELS")
    own = path_named(said) if said else home(environ) / ".ollama" / "models"
    return (own, *OF_SERVICE)


def _model_of(manifest: Path, blobs: Path) -> Path:
    content = read_plain(manifest, CONFIG)
    try:
        layers = msgspec.json.decode(content, type=_Manifest).layers
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UserError(f"{path_text(manifest)} is no manifest of Ollama's: it has no layers") from None
    for layer in layers:
        if layer.media_type == MODEL and _DIGEST.fullmatch(layer.digest):
            return blobs / layer.digest.replace(":", "-")
    raise UserError(f"{path_text(manifest)} names no GGUF file of a model")
