"""Reading what somebody else wrote: never more than its format's limits, never past its end; plain files only."""

import json
import os
import select
import stat
import struct
from pathlib import Path
from typing import BinaryIO

import msgspec

from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.file_limits import GGUF, FileLimits
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes

_CHUNK = 1 << 20
FIRST_BYTE = 10.0  # seconds in which another program has to write to a pipe
_LENGTH = struct.Struct("<Q")


class DamagedError(Exception):
    """The bytes are not what their format says; the message goes on after the file's name, and is made safe. If it
    `is_sound` the file only does not say the sizes of its model; None if it says one that no model has, so that nothing
    which builds the model answers for it either.
    """

    def __init__(self, message: str, *, is_sound: bool | None = False) -> None:
        super().__init__(printable(message))
        self.is_sound = is_sound


def path_text(path: Path) -> str:
    return printable(str(path))


def open_plain(path: Path, name: str = "", *, pipes: bool = False) -> tuple[BinaryIO, int]:
    """An open file and its size in bytes; `name` is what a sentence calls it, the path where that is empty. Raises
    UserError if there is none, it is not a plain file or, with `pipes`, a pipe with data, or it cannot be read.
    """
    name = name or path_text(path)
    try:
        # Opening a pipe without a writer, or a device, would block.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(handle)
    except FileNotFoundError:
        raise UserError(f"{name} does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{name} cannot be read: {reason}") from None
    if pipes and stat.S_ISFIFO(status.st_mode):
        if not select.select((handle,), (), (), FIRST_BYTE)[0]:
            os.close(handle)
            raise UserError(f"{name} is a pipe, and no program wrote to it in {FIRST_BYTE:g} s")
        os.set_blocking(handle, True)
    elif not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise UserError(f"{name} is not a plain file")
    return os.fdopen(handle, "rb"), status.st_size


def read_plain(path: Path, limits: FileLimits, name: str = "") -> bytes:
    """All of a plain file within its format's limits; a sentence calls it `name`, or else by its path.

    Raises:
        UserError: there is none, it is not a plain file, it cannot be read, or it is larger than its format's limit.
    """
    name = name or path_text(path)
    file, size = open_plain(path, name)
    try:
        with file:
            # What the system makes up as it is read, as in /proc, has no size, and may have nothing to read now.
            content = b"" if size > limits.size else file.read(size + 1) or b""
            if len(content) > size:  # at once it would make room for the limit, a megabyte
                content += file.read(limits.size + 1 - len(content)) or b""
    except (OSError, ValueError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        raise UserError(f"{name} cannot be read: {reason}") from None
    if max(size, len(content)) > limits.size:
        raise UserError(f"{name} is larger than {format_bytes(limits.size, 0)}, which no {limits.what} is")
    return content


class Cursor:
    """Reads a file of `size` bytes, open at its beginning, front to back, and no more of it than `limit`."""

    def __init__(self, file: BinaryIO, size: int, limit: int = GGUF.size) -> None:
        self._file = file
        self._end = min(size, limit)
        self._cut = size <= limit
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes; raises DamagedError if the file ends before, or the header is larger than any is."""
        self._reach(count)
        taken = self._file.read(count)
        if len(taken) < count:
            raise DamagedError("is cut short")
        return taken

    def skip(self, count: int) -> None:
        """Pass over the next `count` bytes."""
        self._reach(count)
        self._file.seek(count, 1)

    def skip_strings(self, count: int) -> None:
        """Pass over `count` strings, each after its length in eight bytes; four million of them take a second."""
        start, chunk, at = self.at, b"", 0
        for _ in range(count):
            if at + _LENGTH.size > len(chunk):
                start += at
                self._go_to(start)
                chunk, at = self._file.read(_CHUNK), 0
                if len(chunk) < _LENGTH.size:
                    raise DamagedError("is cut short")
            at += _LENGTH.size + _LENGTH.unpack_from(chunk, at)[0]
        self._go_to(start + at)

    def _go_to(self, at: int) -> None:
        self.at = 0
        self._reach(at)
        self._file.seek(at)

    def number(self, size: int, *, signed: bool = False) -> int:
        """A little-endian whole number of `size` bytes."""
        return int.from_bytes(self.take(size), "little", signed=signed)

    def _reach(self, count: int) -> None:
        self.at += count
        if self.at > self._end:
            raise DamagedError(
                "is cut short" if self._cut else "has a header larger than 100 MB, which no model file has"
            )


def why_no_object(content: bytes) -> str:
    """Explain why `decode_object` cannot read a text: `it is not valid JSON: line 3, expecting value`."""
    if not content.strip():
        return "it is empty"
    try:
        json.loads(content)
    except json.JSONDecodeError as error:
        return f"it is not valid JSON: line {error.lineno}, {error.msg[:1].lower()}{error.msg[1:]}"
    except (ValueError, RecursionError):
        return "it is not valid JSON"
    return "it is not a JSON object"


def decode_object(content: bytes) -> dict[str, object] | None:
    """A JSON object; None if it is none. `Infinity` and `NaN`, which transformers writes, are read as numbers, and
    half a pair of surrogates as a question mark.
    """
    try:
        return msgspec.json.decode(content, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        values = json.loads(json.dumps(json.loads(content), ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
