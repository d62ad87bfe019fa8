"""The header of a GGUF file: its metadata and which tensors it holds (llama.cpp, docs of the format, version 2 and 3).

Types of numbers count by what a block of them really takes (llama.cpp, ggml/src/ggml-common.h). Values of tensors are
never read, and long lists of metadata only passed over.
"""

import re
import struct
from math import prod
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import (
    GGUF,
    LONGEST_GGUF_STRING,
    MOST_GGUF_DIMENSIONS,
    MOST_GGUF_KEYS,
    MOST_GGUF_LISTS,
    MOST_GGUF_TENSORS,
)
from vramtui.core.base.text import printable
from vramtui.models.named_files import MAGIC
from vramtui.models.readers.bounded import Cursor, DamagedError, open_plain, path_text

KEPT = 4096
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


class GgmlType(msgspec.Struct, frozen=True):
    """`elements` numbers stand together in `size` bytes, their scales included."""

    name: str
    elements: int
    size: int

    @property
    def bits(self) -> float:
        return 8 * self.size / self.elements

    def bytes_of(self, numel: int) -> int:
        return -(-numel // self.elements) * self.size


GGML_TYPES = {
    0: GgmlType("f32", 1, 4), 1: GgmlType("f16", 1, 2), 2: GgmlType("q4_0", 32, 18), 3: GgmlType("q4_1", 32, 20),
    6: GgmlType("q5_0", 32, 22), 7: GgmlType("q5_1", 32, 24), 8: GgmlType("q8_0", 32, 34),
    9: GgmlType("q8_1", 32, 36), 10: GgmlType("q2_k", 256, 84), 11: GgmlType("q3_k", 256, 110),
    12: GgmlType("q4_k", 256, 144), 13: GgmlType("q5_k", 256, 176), 14: GgmlType("q6_k", 256, 210),
    15: GgmlType("q8_k", 256, 292), 16: GgmlType("iq2_xxs", 256, 66), 17: GgmlType("iq2_xs", 256, 74),
    18: GgmlType("iq3_xxs", 256, 98), 19: GgmlType("iq1_s", 256, 50), 20: GgmlType("iq4_nl", 32, 18),
    21: GgmlType("iq3_s", 256, 110), 22: GgmlType("iq2_s", 256, 82), 23: GgmlType("iq4_xs", 256, 136),
    24: GgmlType("i8", 1, 1), 25: GgmlType("i16", 1, 2), 26: GgmlType("i32", 1, 4), 27: GgmlType("i64", 1, 8),
    28: GgmlType("f64", 1, 8), 29: GgmlType("iq1_m", 256, 56), 30: GgmlType("bf16", 1, 2),
    34: GgmlType("tq1_0", 256, 54), 35: GgmlType("tq2_0", 256, 66), 39: GgmlType("mxfp4", 32, 17),
    40: GgmlType("nvfp4", 64, 36), 41: GgmlType("q1_0", 128, 18), 42: GgmlType("q2_0", 64, 18),
}  # fmt: skip


def bits_of_type(name: str) -> float:
    """Bits per weight of a type of ggml, by its name, scales included."""
    return next(kind.bits for kind in GGML_TYPES.values() if kind.name == name)


class Passed(msgspec.Struct, frozen=True):
    """A list that was not kept, by its length."""

    length: int


Value = int | float | bool | str | tuple[int | float | bool, ...] | Passed


class TensorInfo(msgspec.Struct, frozen=True):
    """One tensor; `shape` with the innermost dimension first, as the file has it."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.type.bytes_of(self.numel)


class Gguf(msgspec.Struct, frozen=True):
    metadata: dict[str, Value]
    tensors: tuple[TensorInfo, ...]


def read_gguf(path: Path) -> Gguf:
    """The header of the file at `path`; of all parts, where the model is split into several.

    Raises:
        UserError: it cannot be read, is not a whole GGUF file, or another part is missing.
    """
    first = _read_file(path)
    parts = first.metadata.get("split.count", 1)
    if not isinstance(parts, int) or parts <= 1:
        return first
    match = _PART.search(path.name)
    if match is None or int(match[2]) != parts or parts > MOST_GGUF_KEYS:
        raise UserError(
            f"{path_text(path)} is one of {parts} parts, but not named like one: -00001-of-{parts:05d}.gguf"
        )
    stem = path.name[: match.start()]
    files = [_read_file(path.with_name(f"{stem}-{n:05d}-of-{parts:05d}.gguf")) for n in range(1, parts + 1)]
    return Gguf(files[0].metadata, tuple(tensor for file in files for tensor in file.tensors))


def _read_file(path: Path) -> Gguf:
    file, size = open_plain(path)
    with file:
        try:
            return _Reader(Cursor(file, size), size).read()
        except DamagedError as error:
            raise UserError(f"{path_text(path)} {error}") from None


class _Reader:
    def __init__(self, cursor: Cursor, size: int) -> None:
        self.cursor = cursor
        self.size = size
        self.items = 0

    def read(self) -> Gguf:
        """Everything up to the first tensor's bytes, and whether the last one's are there."""
        if self.cursor.take(4) != MAGIC:
            raise DamagedError("is no GGUF file: it does not begin with GGUF")
        version = self.cursor.number(4)
        if version not in {2, 3}:
            other = "is written for big-endian machines" if version >> 16 else f"has version {version} of the format"
            raise DamagedError(f"{other}; versions 2 and 3 in little-endian are known")
        tensors, keys = self.cursor.number(8), self.cursor.number(8)
        if tensors > MOST_GGUF_TENSORS or keys > MOST_GGUF_KEYS:
            raise DamagedError(f"is damaged: it says it has {tensors:,} tensors and {keys:,} values")
        metadata: dict[str, Value] = {}
        for _ in range(keys):
            name = self._string()
            metadata[name] = self._value(self.cursor.number(4))
        infos, end = [], 0
        for _ in range(tensors):
            name, dimensions = self._string(), self.cursor.number(4)
            if dimensions > MOST_GGUF_DIMENSIONS:
                raise DamagedError(f"is damaged: {printable(name[:80])!r} has {dimensions} dimensions")
            shape = tuple(self.cursor.number(8) for _ in range(dimensions))
            kind = self.cursor.number(4)
            if kind not in GGML_TYPES:
                raise DamagedError(f"holds {printable(name[:80])!r} in type {kind}, which is not known")
            infos.append(TensorInfo(name, shape, GGML_TYPES[kind]))
            end = max(end, self.cursor.number(8) + infos[-1].bytes)
        step = metadata.get("general.alignment", 32)
        step = step if isinstance(step, int) and 0 < step <= KEPT else 32
        end += -(-self.cursor.at // step) * step
        if end > self.size:
            raise DamagedError(f"is cut short: {end - self.size:,} of {end:,} bytes are missing")
        return Gguf(metadata, tuple(infos))

    def _string(self) -> str:
        length = self.cursor.number(8)
        if length > LONGEST_GGUF_STRING:
            self.cursor.skip(length)
            return ""
        return self.cursor.take(length).decode("utf-8", "replace")

    def _value(self, kind: int, depth: int = 0) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(depth)
        layout = self._layout(kind)
        value: int | float | bool = struct.unpack(layout, self.cursor.take(struct.calcsize(layout)))[0]
        return value

    @staticmethod
    def _layout(kind: int) -> str:
        if kind not in _NUMBERS:
            raise DamagedError(f"is damaged: a value has type {kind}, which there is not")
        return _NUMBERS[kind]

    def _array(self, depth: int) -> Value:
        if depth >= (GGUF.depth or 0):
            raise DamagedError("is damaged: lists within lists without end")
        kind, length = self.cursor.number(4), self.cursor.number(8)
        self.items += length
        if self.items > (GGUF.count or 0):
            raise DamagedError(f"is damaged: lists of more than {GGUF.count:,} values")
        if kind == _STRING:
            self.cursor.skip_strings(length)
        elif kind == _ARRAY:
            if length > MOST_GGUF_LISTS:
                raise DamagedError(f"is damaged: {length:,} lists in a list")
            for _ in range(length):
                self._array(depth + 1)
        elif length <= KEPT:
            layout = f"<{length}{self._layout(kind)[1:]}"
            return struct.unpack(layout, self.cursor.take(struct.calcsize(layout)))
        else:
            self.cursor.skip(struct.calcsize(self._layout(kind)) * length)
        return Passed(length)
