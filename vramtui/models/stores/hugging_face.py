"""The cache of huggingface_hub, as its documentation lays it out: models--OWNER--NAME/refs and /snapshots.

Source: huggingface_hub 1.x, constants.py (HF_HOME, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE) and file_download.py.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.models.named_files import gguf_called, model_in, path_named

PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_NAME = re.compile(
    rf"((?:{PART}/)?{PART}?)(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,127}}))?(?::([A-Za-z0-9][A-Za-z0-9._-]*))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PREFIX = "models--"


def hub_home(environ: Mapping[str, str]) -> Path:
    """Folder of huggingface_hub: `$HF_HOME`, or a folder of the cache's."""
    if environ.get("HF_HOME"):
        return path_named(environ["HF_HOME"])
    cache = environ.get("XDG_CACHE_HOME") or str(home(environ) / ".cache")
    return path_named(cache) / "huggingface"


def hub_cache(environ: Mapping[str, str]) -> Path:
    """The folder of the cached repositories."""
    folder = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    return path_named(folder) if folder else hub_home(environ) / "hub"


def home(environ: Mapping[str, str]) -> Path:
    """The person's own folder."""
    return Path(environ["HOME"]) if environ.get("HOME") else path_named("~")


def parsed(name: str) -> tuple[str, str, str] | None:
    """Repository, revision and quantization of `owner/name@revision:quantization`; None for anything else."""
    match = _NAME.fullmatch(name)
    if match is None or "--" in match[1] or ".." in name:
        return None
    return match[1], match[2] or "", match[3] or ""


def find(name: str, environ: Mapping[str, str]) -> Path | None:
    """The newest snapshot of a cached repository that holds a model, or the GGUF file in it.

    Raises:
        UserError: it is cached without a config or weights, without that revision, or with several GGUF files.
    """
    name_parts = parsed(name)
    if name_parts is None:
        return None
    repository, revision, tag = name_parts
    folder = hub_cache(environ) / (_PREFIX + repository.replace("/", "--"))
    if not (folder / "snapshots").is_dir():
        return None
    snapshots = _snapshots(folder, revision)
    if not snapshots:
        raise UserError(f"{repository} is in the Hugging Face cache, but not at the revision {revision or 'main'!r}")
    if tag:
        return gguf_called(snapshots[0], tag)
    for snapshot in snapshots:
        model = model_in(snapshot)
        if isinstance(model, tuple):
            stem = Path(model[0]).stem
            raise UserError(f"{repository} has {len(model)} models in the cache; name one as {repository}:{stem}")
        if model is not None:
            return model
    raise UserError(f"{repository} is in the Hugging Face cache without its config, safetensors or GGUF files")


def names(environ: Mapping[str, str]) -> Iterator[str]:
    """Every repository of a model."""
    cache = hub_cache(environ)
    if not cache.is_dir():
        return
    for folder in cache.iterdir():
        if folder.name.startswith(_PREFIX) and (folder / "snapshots").is_dir():
            yield folder.name.removeprefix(_PREFIX).replace("--", "/")


def _snapshots(folder: Path, revision: str) -> list[Path]:
    """The snapshots to look at: what the revision names, or main and then the others, newest first."""
    all_of_them = [path for path in (folder / "snapshots").iterdir() if path.is_dir()]
    commit = _ref(folder / "refs" / (revision or "main")) or revision
    named = [path for path in all_of_them if commit and path.name.startswith(commit)]
    if revision:
        return named
    others = sorted((path for path in all_of_them if path not in named), key=lambda path: -path.stat().st_mtime)
    return named + others


def _ref(path: Path) -> str:
    """The commit that a branch or tag stands for; empty if it is not kept."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        commit = file.read(41).decode("ascii", "replace").strip()
    return commit if _COMMIT.fullmatch(commit) else ""
