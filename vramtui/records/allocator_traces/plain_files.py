"""Whole files, gzipped or not, up to a size that still fits in memory."""

import gzip
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, format_bytes

LARGEST = 4 * GIB
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
                content = unpacked.read(limit + 1)
        else:
            content = file.read(limit + 1)
    if len(content) > limit:
        raise UserError(f"{printable(str(path))} holds more than {format_bytes(limit)}")
    return content
