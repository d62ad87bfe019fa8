import os
import struct
import time
from pathlib import Path

import pytest

from vramtui.core.base.errors import UserError
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


def test_a_header_of_four_million_empty_strings_is_passed_over_quickly(tmp_path: Path) -> None:
    count = 1 << 22
    path = gguf(tmp_path / "many.gguf", array(STRING, count, bytes(8 * count)))
    began = time.process_time()
    assert len(read_gguf(path).metadata) == 1
    assert time.process_time() - began < 5.0


def test_strings_are_passed_over_to_the_byte(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (array(ARRAY, 5000, b""), "5,000 lists in a list"),
        (array(STRING, 1 << 40, b""), "lists of more than"),
        (array(STRING, 2, struct.pack("<Q", 1 << 62)), "is cut short"),
    ],
)
def test_a_damaged_header_is_told_at_once(tmp_path: Path, value: bytes, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_gguf(gguf(tmp_path / "damaged.gguf", value))


def test_numbers_of_a_short_list_are_kept(tmp_path: Path) -> None:
    found = read_gguf(gguf(tmp_path / "few.gguf", array(4, 3, struct.pack("<III", 1, 2, 3))))
    assert found.metadata == {"a": (1, 2, 3)}


def test_nothing_but_plain_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(UserError, match="is not a plain file"):
            open_plain(path)
    with pytest.raises(UserError, match="does not exist"):
        open_plain(tmp_path / "none")
