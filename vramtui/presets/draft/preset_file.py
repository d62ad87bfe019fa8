"""A preset's file as an editor has to know it: its text, what stands before it, and whether it changed since."""

from pathlib import Path
from typing import TypeAlias

import msgspec

from vramtui.presets.reader import read_text

BYTE_ORDER_MARK = "\ufeff"
Stamp: TypeAlias = tuple[int, int, int]


class OpenedFile(msgspec.Struct, frozen=True):
    """A file's text without its byte order mark, the mark or an empty string, and its stamp as it was before."""

    text: str
    mark: str
    stamp: Stamp | None


def open_text(path: Path) -> OpenedFile:
    """The file at `path`.

    Raises:
        UserError: there is none, or it is no small plain file of UTF-8 text.
    """
    stamp = stamp_of(path)
    text = read_text(path)
    try:
        with path.open("rb") as file:
            marked = file.read(3) == BYTE_ORDER_MARK.encode()
    except OSError:
        marked = False
    return OpenedFile(text, BYTE_ORDER_MARK if marked else "", stamp)


def stamp_of(path: Path) -> Stamp | None:
    """What changes with every write: time, size and inode; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
