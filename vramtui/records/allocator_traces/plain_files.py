"""Whole files, gzipped or not, up to a size that still fits in memory."""

import gzip
from pathlib import Path
from typing import IO

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, format_bytes

LARGEST = 4 * GIB
PIECE = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: Path, limit: int = LARGEST) -> bytes:
    """A file's content, decompressed where it begins as gzip does.

    Raises:
        OSError: it cannot be read, or its compression is broken (as are EOFError and zlib.error).
        UserError: it holds more than `limit` bytes.
    """
    with path.open("rb") as file:
        start = file.read(2)
        file.seek(0)
        if start == GZIP_MAGIC:
            with gzip.GzipFile(fileobj=file) as unpacked:
                content = _up_to(unpacked, limit)
        else:
            content = _up_to(file, limit)
    if len(content) > limit:
        raise UserError(f"{printable(str(path))} holds more than {format_bytes(limit)}")
    return content


def _up_to(file: "IO[bytes] | gzip.GzipFile", limit: int) -> bytes:
    """The content, or one byte more than `limit` of it. Asked for in one go, the memory for `limit` would be taken
    before it is known how much there is.
    """
    content = bytearray()
    while len(content) <= limit:
        piece = file.read(min(PIECE, limit + 1 - len(content)))
        if not piece:
            break
        content += piece
    return bytes(content)
