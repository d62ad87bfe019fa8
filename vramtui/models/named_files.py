"""Files that people, command lines and other programs name, which may be names that no file can have; and which file of
a folder describes the model in it.

On Python 3.11 `Path.exists` raises OSError for a name that is too long or whose folder may not be looked into, and
`Path.expanduser` RuntimeError for the home of an unknown user.
"""

import os
import re
import stat
from pathlib import Path
from typing import TypeAlias

from vramtui.core.base.errors import UserError

Stamp: TypeAlias = tuple[int, int, int]


def path_named(name: str | Path) -> Path:
    """The path that a name means: `~` and `~user` are home folders; that of an unknown user stays as it is written."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 - Path's own raises for an unknown user


def exists(name: str | Path) -> bool:
    """Return whether a file of that name exists; False also if the name is too long or has a NUL in it."""
    return _mode(name) is not None


def is_folder(name: str | Path) -> bool:
    return stat.S_ISDIR(_mode(name) or 0)


def is_plain_file(name: str | Path) -> bool:
    """Return whether there is a file of that name, and no device or pipe, as `exists`."""
    return stat.S_ISREG(_mode(name) or 0)


def stamp_of(path: Path | str) -> Stamp | None:
    """Time, size and inode of a file, which change with every write; None without a file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - hundreds of presets, whose names are no paths yet
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _mode(name: str | Path) -> int | None:
    try:
        return path_named(name).stat().st_mode
    except (OSError, ValueError):
        return None


CONFIG = "config.json"
CONFIGS = (CONFIG, "model_index.json")
MAGIC = b"GGUF"
INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
SUFFIXES = (".json", ".safetensors", ".gguf")
MOST_FILES = 4096
# A model split into parts is named by its first; a projector of images is next to its model.
_LATER_PART = r"-(?!00001)\d{5}-of-\d{5}\.(gguf|safetensors)$"
_PROJECTOR = r"(?i)^mmproj|[-_.]mmproj[-_.]"


def is_gguf(path: Path) -> bool:
    """Return whether a file holds a GGUF, whatever its name: Ollama names them by their digest."""
    if path.suffix == ".gguf":
        return True
    if not path.name.startswith("sha256-") or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def model_in(folder: Path) -> Path | tuple[str, ...] | None:
    """The file or folder that describes the model in `folder`: itself where it has a config or a pipeline's index, else
    its one GGUF, index or safetensors file; the names where there are several, None if there is none.
    """
    if any((folder / name).is_file() for name in CONFIGS):
        return folder
    files = ggufs_in(folder)
    if not files:
        for name in (INDEX, WEIGHTS):
            if (folder / name).is_file():
                return folder / name
        files = _model_files(folder, ".safetensors")
    return tuple(path.name for path in files) if len(files) > 1 else files[0] if files else None


def ggufs_in(folder: Path) -> list[Path]:
    """The GGUF files of a folder that hold models: a split one by its first part, no projectors."""
    return [path for path in _model_files(folder, ".gguf") if not re.search(_PROJECTOR, path.name)]


def gguf_called(folder: Path, tag: str) -> Path:
    """The GGUF file of a folder, and of the folders in it, whose name has `tag` in it: `Q4_K_M`. Raises UserError if
    there is none, or several.
    """
    inner = [path for path in sorted(folder.iterdir())[:MOST_FILES] if path.is_dir()]
    files = [path for place in (folder, *inner) for path in ggufs_in(place)]
    word = re.compile(rf"(?i)(?<![a-z0-9]){re.escape(tag.removesuffix('.gguf'))}(?![a-z0-9_])")
    matching = [path for path in files if word.search(path.name)]
    if len(matching) != 1:
        there = ", ".join(path.name for path in matching or files) or "none"
        raise UserError(f"{len(matching)} GGUF files there have {tag!r} in their names; there are: {there[:400]}")
    return matching[0]


def _model_files(folder: Path, suffix: str) -> list[Path]:
    names = sorted(path for path in folder.iterdir() if path.name.endswith(suffix) and not path.name.startswith("."))
    return [path for path in names[:MOST_FILES] if not re.search(_LATER_PART, path.name) and path.is_file()]
