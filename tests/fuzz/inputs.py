"""Input that is nearly right: what is right with pieces, values or words changed, in the grammar of its format, and
some that is nothing at all.
"""

import gzip
import json
import pickle
import pickletools
import re
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

from hypothesis import strategies as st

from vramtui.records.memory_snapshot import load_plain
from vramtui.records.run_history import TABLE

FOLDER = Path(mkdtemp(prefix="vramtui-fuzz-"))
# What a reader may not expect in the place of a value that it knows.
VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2, 7, 255, 1 << 16, 1 << 31, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63), 10**30),
    *(0.0, -0.5, 1e-320, 1e308, float("inf"), float("nan"), True, False, None, "", "0", "auto", "none", "a" * 5000),
    *([], {}, [[]], [{}], [None], {"": None}, json.loads("[" * 200 + "]" * 200)),
    *("\x1b[2J\x9b", "a\u202eb\u2028", "\ud800", "../../x", "$(x)", "{{"),
)
WORDS = (
    *("0", "-1", "1e999", "nan", "9" * 400, "True", "auto", "none", "[]", "{}", "''", "'", '"', "\\", "../..", "é"),
    *("\x1b[2J", "\u202e", "\0", "[1,[2,[3", "--", "=", "GiB", "1_000", "0x10", "\uff11\uff12", "1.5.5", "a" * 5000),
)
SEVERAL = (1, 1, 1, 2, 3, 6)  # changes of one input
_WORD = re.compile(r"\s+|[-\w.]+|.")


def change_value(document: Any, random: Random) -> None:
    places = list(_places(document))
    if not places:
        return
    owner, key = random.choice(places)
    how = random.randrange(10)
    if how == 0:
        del owner[key]
    elif how == 1 and isinstance(owner, list):
        owner += [owner[key]] * random.choice((1, 40))
    elif how == 2 and isinstance(owner, dict):
        owner[random.choice(("", "x", "type", f"{key}s"))] = deepcopy(random.choice(VALUES))
    else:
        owner[key] = deepcopy(random.choice(VALUES))  # it may be changed in turn


def _places(document: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in list(pairs):
        yield document, key
        if depth < 20:
            yield from _places(value, depth + 1)


def with_other_values(data: bytes, random: Random) -> bytes:
    """A JSON document, or lines of them, with other values.

    Raises:
        ValueError: it holds no JSON.
    """
    try:
        documents = [json.loads(data)]
    except ValueError:
        documents = [json.loads(line) for line in data.splitlines() if line.strip()]
    if not documents:
        raise ValueError(data)
    for _ in range(random.choice(SEVERAL)):
        change_value(random.choice(documents), random)
    return b"\n".join(json.dumps(document).encode("utf-8", "surrogatepass") for document in documents)


def with_other_words(data: bytes, other: bytes, random: Random) -> bytes:
    """A text with words left out, exchanged for odd ones, and some of `other`'s put in."""
    words, others = (_WORD.findall(text.decode("utf-8", "replace")) for text in (data, other))
    for _ in range(random.choice(SEVERAL)):
        at, begin = random.randrange(len(words) + 1), random.randrange(len(others) + 1)
        new = random.choice(([], [random.choice(WORDS)], others[begin : begin + random.randrange(1, 24)]))
        words[at : at + random.randrange(3)] = new
    return "".join(words).encode("utf-8", "surrogatepass")


LENGTHS = (0, 1, 2, 255, 1 << 16, (1 << 16) + 1, 1 << 22, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
OPCODES = (
    *(b"N", b"0", b"2", b"(", b")", b"]", b"}", b"l", b"d", b"t", b"a", b"e", b"s", b"u", b"\x88", b"\x94", b"h\x00"),
    *(b"j\xff\xff\xff\x00", b"r\xff\xff\x00\x00", b"\x8a\xff" + b"\x7f" * 255, b"K\xff", b"J\xff\xff\xff\xff", b"."),
    *(b"cos\nsystem\n", b"\x93", b"R", b"\x81", b"b", b"P1\n", b"Q", b"\x82\x01", b"\x96\x08" + bytes(15), b"\x97"),
)
SQL = (
    "DROP TABLE runs", "DROP INDEX runs_by_time", "CREATE TABLE other (a)",
    "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
    "CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT RAISE(ABORT, 'x'); END", "ALTER TABLE runs RENAME TO others",
    "ALTER TABLE runs RENAME COLUMN document TO text", "CREATE VIEW v AS SELECT * FROM runs", "DELETE FROM runs",
    "UPDATE runs SET key = key || 'x', started_at = -started_at", TABLE,
)  # fmt: skip
GGUF_KEYS = (
    *("general.architecture", "general.alignment", "general.file_type", "split.count", "split.no", "general.name"),
    *(
        f"llama.{key}"
        for key in ("block_count", "embedding_length", "feed_forward_length", "context_length", "vocab_size")
    ),
    *(
        f"llama.attention.{key}"
        for key in ("head_count", "head_count_kv", "key_length", "sliding_window", "layer_norm_rms_epsilon")
    ),
    *("llama.rope.dimension_count", "llama.expert_count", "llama.expert_used_count", "tokenizer.ggml.tokens"),
)


# --- model files ---


def safetensors(data: bytes, random: Random) -> bytes:
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = data[8 : 8 + length], data[8 + length :]
    changed = with_other_values(header, random)
    claimed = len(changed) if random.random() < 0.9 else random.choice(LENGTHS)
    return struct.pack("<Q", claimed) + changed + rest[: random.choice((len(rest), 0, len(rest) // 2))]


def gguf(data: bytes, random: Random) -> bytes:
    keys, tensors, rest = _gguf_parts(data)
    for _ in range(random.choice(SEVERAL)):
        how, records = random.randrange(7), random.choice((keys, tensors))
        if how == 0 and records:
            records.append(random.choice(records))
        elif how == 1 and records:
            del records[random.randrange(len(records))]
        elif how == 2:
            keys.append(_gguf_text(random.choice(GGUF_KEYS)) + _gguf_value(random))
        elif how == 3 and len(records) > 1:
            i, j = random.randrange(len(records)), random.randrange(len(records))
            records[i], records[j] = records[j], records[i]
        elif records:
            at = random.randrange(len(records))
            records[at] = _other_number(records[at], random)
    counts = [len(tensors), len(keys)]
    if random.random() < 0.1:
        counts[random.randrange(2)] = random.choice(LENGTHS)
    whole = b"GGUF" + struct.pack("<IQQ", 3, *counts) + b"".join((*keys, *tensors))
    return whole + bytes(-len(whole) % 32) + rest


def _gguf_parts(data: bytes) -> tuple[list[bytes], list[bytes], bytes]:
    _, tensors, keys = struct.unpack("<IQQ", data[4:24])
    at, found = 24, []
    for _ in range(keys):
        begin = at
        at += 8 + struct.unpack("<Q", data[at : at + 8])[0]
        at = _after_value(data, at + 4, struct.unpack("<I", data[at : at + 4])[0])
        found.append(data[begin:at])
    listed = []
    for _ in range(tensors):
        begin = at
        at += 8 + struct.unpack("<Q", data[at : at + 8])[0]
        at += 4 + 8 * struct.unpack("<I", data[at : at + 4])[0] + 12
        listed.append(data[begin:at])
    return found, listed, data[at + -at % 32 :]


_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _after_value(data: bytes, at: int, kind: int) -> int:
    if kind in _SIZES:
        return at + _SIZES[kind]
    length: int = struct.unpack("<Q", data[at : at + 8])[0]
    if kind == 8:
        return at + 8 + length
    inner, count = struct.unpack("<IQ", data[at : at + 12])
    at += 12
    for _ in range(min(count, 1 << 12)):
        at = _after_value(data, at, inner)
    return at


def _gguf_text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _gguf_value(random: Random) -> bytes:
    kind = random.choice((4, 4, 5, 6, 7, 8, 9, 9, 10, 12))
    if kind == 8:
        return struct.pack("<I", 8) + _gguf_text(random.choice(("llama", "gpt2", "", "\x1b[2J", "a" * 300)))
    if kind == 9:
        inner, count = random.choice(((4, 3), (5, 40), (8, 2), (9, 1), (7, 8)))
        items = {8: _gguf_text("x"), 9: struct.pack("<IQI", 4, 1, 7)}.get(inner, b"\1" * _SIZES.get(inner, 0))
        return struct.pack("<IIQ", 9, inner, count) + items * count
    return struct.pack("<I", kind) + random.choice(LENGTHS).to_bytes(8, "little")[: _SIZES[kind]]


def _other_number(record: bytes, random: Random) -> bytes:
    name = 8 + struct.unpack("<Q", record[:8])[0]
    size = random.choice((4, 8))
    at = random.randrange(name, max(name + 1, len(record) - size + 1)) if random.random() < 0.9 else 0
    value = random.choice((*LENGTHS, random.randrange(64)))
    return record[:at] + value.to_bytes(8, "little")[:size] + record[at + size :]


# --- pickles ---


def pickles(data: bytes, random: Random) -> bytes:
    packed = data[:2] == b"\x1f\x8b"
    with suppress(OSError, EOFError, zlib.error):
        data = gzip.decompress(data) if packed else data
    if data[:1] in b"{[ ":
        return with_other_values(data, random)
    changed = _other_opcodes(data, random) if random.random() < 0.4 else _repickled(data, random)
    return gzip.compress(changed, 1) if packed else changed


def _repickled(data: bytes, random: Random) -> bytes:
    try:
        whole = load_plain("seed", data)
    except Exception as error:
        raise ValueError("no snapshot any more") from error
    for _ in range(random.choice(SEVERAL)):
        change_value(whole, random)
    return pickle.dumps(whole, random.randrange(6))


def _other_opcodes(data: bytes, random: Random) -> bytes:
    places = [place for _, _, place in pickletools.genops(data) if place is not None]
    pieces = [data[begin:end] for begin, end in zip(places, [*places[1:], len(data)], strict=True)]
    for _ in range(random.choice(SEVERAL)):
        at, how = random.randrange(len(pieces)), random.randrange(4)
        if how == 0:
            del pieces[at]
        elif how == 1:
            pieces.insert(at, random.choice(pieces))
        elif how == 2:
            pieces.insert(at, random.choice(OPCODES))
        else:
            other = random.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
    return b"".join(pieces)


# --- databases ---


def sqlite_bytes(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def databases(data: bytes, random: Random) -> bytes:
    path = FOLDER / "changed.sqlite3"
    path.write_bytes(data)
    with closing(sqlite3.connect(path)) as database:
        try:
            for _ in range(random.choice(SEVERAL)):
                _change_database(database, random)
            database.commit()
            database.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise ValueError("no database any more") from error
    return path.read_bytes()


def _change_database(database: sqlite3.Connection, random: Random) -> None:
    how = random.randrange(6)
    if how == 0:
        database.execute(f"PRAGMA user_version = {random.choice((0, 1, 2, 3, -1, 2147483647))}")
    elif how == 1:
        with suppress(sqlite3.OperationalError):
            database.execute(random.choice(SQL))
    elif how <= 3:
        rows = database.execute("SELECT id, document FROM runs").fetchall()
        number, document = random.choice(rows or [(1, b"{}")])
        whole = json.loads(document) if isinstance(document, bytes) else {}
        change_value(whole, random)
        changed: object = json.dumps(whole).encode("utf-8", "surrogatepass")
        if random.random() < 0.2:
            changed = random.choice((b"{", "text", 7, b"", b"\xff" * 9, 1.5))
        database.execute("UPDATE runs SET document = ? WHERE id = ?", (changed, number))
    else:
        column = random.choice(("key", "started_at", "ended_at", "host", "preset", "predicted", "gpu_uuid", "pid"))
        value = random.choice((0, -1, 1.5, float("inf"), "x", "\x1b[2J", b"\xff", (1 << 63) - 1, None, "a" * 5000))
        with suppress(sqlite3.IntegrityError):
            database.execute(f"UPDATE runs SET {column} = ? WHERE id = {random.randrange(1, 4)}", (value,))  # noqa: S608 - ours


PIECES = (
    *(b"", b"\x1b[2J", b"\x9b", b"\n", b"\r", b"\t", b"\0", b",", b'"', b"'''", b"[", b"]", b"{", b"}", b"=", b"#"),
    *(b"-1", b"0", b"nan", b"1e999", b"99999999999999999999", b"null", b"true", b"\\ud800", b"\xff"),
    *("\u202e".encode(), "\u2028".encode(), "\x9b".encode(), "\ud83d\ude00".encode("utf-16", "surrogatepass")),
)
LARGEST = 1 << 16  # bytes
# Changes that keep the grammar of a binary format, by target.
BINARY = {"weights": safetensors, "gguf": gguf, "snapshots": pickles, "history": databases}


def near(name: str, given: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Inputs of the target `name` that are nearly those given: in its own grammar where it has one."""
    piece = st.one_of(st.binary(max_size=12), st.sampled_from(PIECES), st.text(max_size=6).map(_encoded))
    edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 24), piece), max_size=6)
    # By their numbers: Hypothesis spells out what it samples from, which are files here.
    seed, random = st.integers(0, len(given) - 1).map(given.__getitem__), st.randoms(use_true_random=False)
    edited = st.builds(_edited, seed, edits, seed, crossed=st.booleans())
    in_grammar = st.builds(partial(_in_grammar, name), seed, seed, random)
    return st.one_of(in_grammar, edited, in_grammar, st.binary(max_size=400), st.text(max_size=200).map(_encoded))


def _in_grammar(name: str, data: bytes, other: bytes, random: Random) -> bytes:
    change = BINARY.get(name, with_other_values)
    if name in BINARY or random.random() < 0.5:
        with suppress(ValueError, RecursionError):  # some seeds are of no grammar
            return change(data, random)[:LARGEST]
    return with_other_words(data, other, random)[:LARGEST]


def _edited(start: bytes, edits: list[tuple[float, int, bytes]], other: bytes, *, crossed: bool) -> bytes:
    """`start` with pieces exchanged: each edit is a place from 0 to 1, how many bytes go, and what comes."""
    data = start
    for where, length, new in edits:
        at = int(where * len(data))
        data = data[:at] + new + data[at + length :]
    if crossed and edits:
        at = int(edits[0][0] * min(len(data), len(other)))
        data = data[:at] + other[at:]
    return data[:LARGEST]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
