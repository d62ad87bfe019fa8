"""Models on this machine: a path, a folder, or a name in a local store, as the file that describes it.

LM Studio: models/PUBLISHER/NAME/*.gguf, or a folder with a config.json and safetensors (its documentation, "Import
models": the folder's layout; `~/.lmstudio-home-pointer` names another home).

Ollama: a manifest for each tag, which names its GGUF by digest (ollama 0.12, server/modelpath.go: the folders,
types/model/name.go: names, and the media types of a manifest).

The cache of huggingface_hub 1.x: models--OWNER--NAME/refs and /snapshots (its documentation; constants.py: HF_HOME,
HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE; file_download.py).
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import CONFIG
from vramtui.core.base.text import printable
from vramtui.models.named_files import SUFFIXES, gguf_called, is_gguf, model_in, path_named
from vramtui.models.readers.bounded import path_text, read_plain

PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_HUB_NAME = re.compile(
    rf"((?:{PART}/)?{PART}?)(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,127}}))?(?::([A-Za-z0-9][A-Za-z0-9._-]*))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PREFIX = "models--"


def hub_home(environ: Mapping[str, str]) -> Path:
    """Folder of huggingface_hub: `$HF_HOME`, or a folder of the cache's."""
    if environ.get("HF_HOME"):
        return path_named(environ["HF_HOME"])
    return path_named(environ.get("XDG_CACHE_HOME") or str(home(environ) / ".cache")) / "huggingface"


def hub_cache(environ: Mapping[str, str]) -> Path:
    folder = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    return path_named(folder) if folder else hub_home(environ) / "hub"


def home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else path_named("~")


def parsed(name: str) -> tuple[str, str, str] | None:
    """Repository, revision and quantization of `owner/name@revision:quantization`; None for anything else."""
    match = _HUB_NAME.fullmatch(name)
    return None if match is None or "--" in match[1] or ".." in name else (match[1], match[2] or "", match[3] or "")


def find_cached(name: str, environ: Mapping[str, str]) -> Path | None:
    """The newest snapshot of a cached repository that holds a model, or the GGUF file in it. Raises UserError if it is
    cached without a config or weights, without that revision, or with several GGUF files.
    """
    name_parts = parsed(name)
    if name_parts is None:
        return None
    repository, revision, tag = name_parts
    folder = hub_cache(environ) / (_PREFIX + repository.replace("/", "--"))
    if not (folder / "snapshots").is_dir():
        return None
    # What the revision names, or main and then the others, newest first.
    snapshots = [path for path in (folder / "snapshots").iterdir() if path.is_dir()]
    snapshots.sort(key=lambda path: -path.stat().st_mtime)
    commit, branch = revision, folder / "refs" / (revision or "main")
    if branch.is_file():
        with branch.open("rb") as file:
            written = file.read(41).decode("ascii", "replace").strip()
        commit = written if _COMMIT.fullmatch(written) else commit
    named = [path for path in snapshots if commit and path.name.startswith(commit)]
    snapshots = named if revision else [*named, *(path for path in snapshots if path not in named)]
    if not snapshots:
        raise UserError(f"{repository} is in the Hugging Face cache, but not at the revision {revision or 'main'!r}")
    if tag:
        return gguf_called(snapshots[0], tag)
    for snapshot in snapshots:
        if (model := _only_model(snapshot, repository, "the cache")) is not None:
            return model
    raise UserError(f"{repository} is in the Hugging Face cache without its config, safetensors or GGUF files")


def _only_model(folder: Path, repository: str, place: str) -> Path | None:
    model = model_in(folder)
    if isinstance(model, tuple):
        stem = Path(model[0]).stem
        raise UserError(f"{repository} has {len(model)} models in {place}; name one as {repository}:{stem}")
    return model


def cached_names(environ: Mapping[str, str]) -> Iterator[str]:
    """Every repository of a model."""
    cache = hub_cache(environ)
    if not cache.is_dir():
        return
    for folder in cache.iterdir():
        if folder.name.startswith(_PREFIX) and (folder / "snapshots").is_dir():
            yield folder.name.removeprefix(_PREFIX).replace("--", "/")


_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?=[^/]+/)")
LONGEST = 400


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is on this machine.

    Attributes:
        name: as it is called in its store; empty if it was named by its path.
        path: its config.json, GGUF, safetensors or index, or a folder with a config.json or model_index.json.
        store: the store in words; empty for a path.
        assumed: it is only called so: what lies there may be another model.
    """

    name: str
    path: Path
    store: str = ""
    assumed: bool = False


POINTER, LONGEST_PATH = ".lmstudio-home-pointer", 4096


def find_in_lm_studio(name: str, environ: Mapping[str, str]) -> Path | None:
    """The model of `publisher/name`, its GGUF by `:Q4_K_M` where there are several. Raises UserError if there are
    several GGUF files, or none of that quantization.
    """
    name_parts = parsed(name)
    if name_parts is None or name_parts[1] or "/" not in name_parts[0]:
        return None
    repository, _, tag = name_parts
    for place in _lm_studio_folders(environ):
        folder = place / repository
        if not folder.is_dir():
            continue
        return gguf_called(folder, tag) if tag else _only_model(folder, repository, "LM Studio")
    return None


def names_in_lm_studio(environ: Mapping[str, str]) -> Iterator[str]:
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
    """The GGUF of `model:tag`, `owner/model:tag` or `host/owner/model:tag`; `latest` where no tag is said. Raises
    UserError if its manifest is damaged, or the file that it names is missing.
    """
    match = _NAME.fullmatch(name)
    if match is None or ".." in name:
        return None
    host, owner, model, tag = match.groups()
    if host and not owner:
        host, owner = None, host
    inside = Path(host or REGISTRY, owner or OWNER, model, tag or TAG)
    for folder in _ollama_folders(environ):
        manifest = folder / "manifests" / inside
        if not manifest.is_file():
            continue
        content = read_plain(manifest, CONFIG)
        try:
            layers = msgspec.json.decode(content, type=_Manifest).layers
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UserError(f"{path_text(manifest)} is not a manifest of Ollama's: it has no layers") from None
        for layer in layers:
            if layer.media_type == MODEL and _DIGEST.fullmatch(layer.digest):
                return folder / "blobs" / layer.digest.replace(":", "-")
        raise UserError(f"{path_text(manifest)} names no GGUF file of a model")
    return None


def names_in_ollama(environ: Mapping[str, str]) -> Iterator[str]:
    for folder in _ollama_folders(environ):
        for manifest in (folder / "manifests").glob("*/*/*/*"):
            host, owner, model, tag = manifest.parts[-4:]
            start = "" if host == REGISTRY else f"{host}/"
            yield f"{start}{'' if not start and owner == OWNER else f'{owner}/'}{model}:{tag}"


def _ollama_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    folder = environ.get("OLLAMA_MODELS")
    return (path_named(folder) if folder else home(environ) / ".ollama" / "models", *OF_SERVICE)


Lookup = Callable[[str, Mapping[str, str]], Path | None]
Listing = Callable[[Mapping[str, str]], Iterator[str]]
STORES: tuple[tuple[str, Lookup, Listing], ...] = (
    ("the Hugging Face cache", find_cached, cached_names),
    ("LM Studio's models", find_in_lm_studio, names_in_lm_studio),
    ("Ollama's models", find_in_ollama, names_in_ollama),
)


def find_model(name: str, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> LocalModel | None:
    """The model that `name` means; None if it is neither a model's file nor in a store. No network is used.

    Args:
        name: a path of a file or folder; `owner/name`, with `@revision` or `:quantization` behind it; an address on
            huggingface.co; a name of Ollama's such as `llama3.2:1b`.
        environ: the variables that name the stores (HF_HOME, HF_HUB_CACHE, OLLAMA_MODELS, HOME …); of a job, its own.
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
    return name if match is None else re.sub(r"/(?:tree|blob|resolve)/.*", "", name[match.end() :].rstrip("/"))


def is_model_file(path: str) -> bool:
    """Return whether there is a model's own file, or a folder with one, at a path; a preset's file is none."""
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
    """A sentence for a name that no preset has and no store knows, with what to do next: `alike` is the key of a preset
    whose model has that name's words and size, and `guess` asks whether another name was meant.
    """
    places = ", ".join(store for store, _, _ in STORES)
    shown_name = printable(name[:LONGEST])
    presets = (
        f"the preset {alike} has a model of that name and size" if alike else "`vramtui presets list` names presets"
    )
    return (
        f"{shown_name} not found (searched presets, files, {places}){guess}; "
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
