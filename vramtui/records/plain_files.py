"""Whole files, gzipped or not, up to a size that still fits in memory; and pickles that hold nothing but plain values,
for any other could run code of its writer's choosing when read.
"""

import gzip
import io
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import PICKLED_SPARE, PICKLED_TIMES, SNAPSHOT
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.models.readers.bounded import open_plain

PIECE = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"


class _PlainUnpickler(pickle.Unpickler):
    """Knows no class and no function, so that only containers, numbers, strings and None can come out."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(io.BytesIO(content))
        self._name = name

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        asked = printable(f"{module_name}.{global_name}")
        raise UserError(
            f"{self._name} is not a plain memory snapshot: it asks for {asked}, and a pickle that does may run code; "
            "it was not read further"
        )

    def persistent_load(self, _pid: object, /) -> NoReturn:
        raise UserError(f"{self._name} is not a plain memory snapshot: it refers to objects outside of it")


@contextmanager
def _bounded(size: int) -> Iterator[None]:
    """Let this process take no more memory than the values of a pickle of `size` bytes can need.

    Nine bytes can ask for a memo of four billion places, allocated at once.
    """
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = taken + PICKLED_SPARE + PICKLED_TIMES * size
    resource.setrlimit(resource.RLIMIT_AS, (min(limit for limit in (wanted, soft, hard) if limit >= 0), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def load_plain(name: str, content: bytes) -> object:
    """The plain values in a pickle.

    Args:
        name: the file's, for the sentence.
        content: the pickle.

    Raises:
        UserError: it asks for anything but plain values, or it is broken.
    """
    try:
        with _bounded(len(content)):
            return _PlainUnpickler(content, name).load()
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{name} asks for more memory than a file of its size can hold") from None
    # A broken pickle can raise nearly any error, from the opcodes as from the containers they act on.
    except Exception:  # noqa: BLE001 - see above
        raise UserError(f"{name} is not a whole pickle") from None


def read_bytes(path: Path, limit: int = SNAPSHOT.size) -> bytes:
    """A file's content, decompressed where it begins as gzip does.

    Raises:
        OSError: it cannot be read, or its compression is broken (as are EOFError and zlib.error).
        UserError: it is not a plain file, holds more than `limit` bytes, or unpacks to many times its own size.
    """
    name = printable(str(path))
    file, size = open_plain(path, name)
    with file:
        if size > limit:
            raise UserError(f"{name} is larger than {format_bytes(limit)}, which no {SNAPSHOT.what} is")
        start = file.read(2)
        file.seek(0)
        if start != GZIP_MAGIC:
            content = _up_to(file, limit)
        else:
            limit = min(limit, SNAPSHOT.spare + (SNAPSHOT.ratio or 0) * size)
            with gzip.GzipFile(fileobj=file) as unpacked:
                content = _up_to(unpacked, limit)
    if len(content) > limit:
        raise UserError(f"{name} holds more than {format_bytes(limit)}, which no {SNAPSHOT.what} of its size does")
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
