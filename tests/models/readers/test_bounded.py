import struct
import time
from pathlib import Path

import pytest

from vramtui.models.readers.bounded import Cursor, DamagedError, open_plain
from vramtui.models.readers.gguf import read_gguf

KEY = struct.pack("<Q", 1) + b"a"
ARRAY, STRING = 9, 8


def gguf(path: Path, *values: bytes) -> Path:
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + b"".join(KEY + value for value in values)
    path.write_bytes(header + bytes(-len(header) % 32))
    return path


def array(kind: int, length: int, items: bytes) -> bytes:
    return struct.pack("<IIQ", ARRAY, kind, length) + items


def test_lists_and_strings_are_passed_over_quickly_to_the_byte(tmp_path: Path) -> None:
    count = 1 << 22
    path = gguf(tmp_path / "many.gguf", array(STRING, count, bytes(8 * count)))
    began = time.process_time()
    assert len(read_gguf(path).metadata) == 1
    assert time.process_time() - began < 5.0
    found = read_gguf(gguf(tmp_path / "few.gguf", array(4, 3, struct.pack("<III", 1, 2, 3))))
    assert found.metadata == {"a": (1, 2, 3)}
    words = [b"x" * length for length in (0, 1, 7, 1 << 20, 3, (1 << 20) - 8, 9)]
    path = tmp_path / "words"
    path.write_bytes(b"".join(struct.pack("<Q", len(word)) + word for word in words) + b"end")
    file, size = open_plain(path)
    with file:
        cursor = Cursor(file, size)
        cursor.skip_strings(len(words))
        assert cursor.take(3) == b"end"
    for count in (len(words) + 1, 1 << 40):
        file, size = open_plain(path)
        with file, pytest.raises(DamagedError):
            Cursor(file, size).skip_strings(count)
