"""Files that people, command lines and other programs name: such a name may be one that no file can have.

On Python 3.11 `Path.exists` raises OSError for a name that is too long or whose folder may not be looked into, and
`Path.expanduser` RuntimeError for the home of a user whom nobody knows.
"""

import os
import stat
from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[int, int, int]


def path_named(name: str | Path) -> Path:
    """The path that a name means: `~` and `~user` are home folders; that of an unknown user stays as it is written."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 - Path's own raises for an unknown user


def exists(name: str | Path) -> bool:
    """Whether there is anything of that name. False too where that cannot be: it is too long or has a NUL in it."""
    return _mode(name) is not None


def is_folder(name: str | Path) -> bool:
    """Whether there is a folder of that name, as `exists`."""
    return stat.S_ISDIR(_mode(name) or 0)


def is_plain_file(name: str | Path) -> bool:
    """Whether there is a file of that name, and no device or pipe, as `exists`."""
    return stat.S_ISREG(_mode(name) or 0)


def stamp_of(path: Path) -> Stamp | None:
    """What changes with every write: time, size and inode; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _mode(name: str | Path) -> int | None:
    try:
        return path_named(name).stat().st_mode
    except (OSError, ValueError):
        return None
