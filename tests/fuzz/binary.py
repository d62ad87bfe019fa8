"""Changes that keep the grammar of a binary format, for a fuzz target: model files, pickles and databases."""

import gzip
import json
import pickle
import pickletools
import sqlite3
import struct
import zlib
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from tests.fuzz.changes import SEVERAL, change_value, with_other_values
from vramtui.records.memory_snapshot import load_plain
from vramtui.records.run_history import TABLE

FOLDER = Path(mkdtemp(prefix="vramtui-fuzz-"))
LENGTHS = (0, 1, 2, 255, 1 << 16, (1 << 16) + 1, 1 << 22, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
OPCODES = (
    *(b"N", b"0", b"2", b"(", b")", b"]", b"}", b"l", b"d", b"t", b"a", b"e", b"s", b"u", b"\x88", b"\x94", b"h\x00"),
    *(b"j\xff\xff\xff\x00", b"r\xff\xff\x00\x00", b"\x8a\xff" + b"\x7f" * 255, b"K\xff", b"J\xff\xff\xff\xff", b"."),
    *(b"cos\nsystem\n", b"\x93", b"R", b"\x81", b"b", b"P1\n", b"Q", b"\x82\x01", b"\x96\x08" + bytes(15), b"\x97"),
)
SQL = (
    "DROP TABLE runs",
    "DROP INDEX runs_by_time",
    "CREATE TABLE other (a)",
    "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
    "CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT RAISE(ABORT, 'x'); END",
    "ALTER TABLE runs RENAME TO others",
    "ALTER TABLE runs RENAME COLUMN document TO text",
    "CREATE VIEW v AS SELECT * FROM runs",
    "DELETE FROM runs",
    "UPDATE runs SET key = key || 'x', started_at = -started_at",
    TABLE,
)
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
    """A header with other tensors, its length true, or nearly."""
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = data[8 : 8 + length], data[8 + length :]
    changed = with_other_values(header, random)
    claimed = len(changed) if random.random() < 0.9 else random.choice(LENGTHS)
    return struct.pack("<Q", claimed) + changed + rest[: random.choice((len(rest), 0, len(rest) // 2))]


def gguf(data: bytes, random: Random) -> bytes:
    """A header whose numbers, strings and records are others, its counts true, or nearly."""
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
    """The records of the metadata and of the tensors, and what comes after them."""
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
    """A record with four or eight of its bytes, behind its name, another number."""
    name = 8 + struct.unpack("<Q", record[:8])[0]
    size = random.choice((4, 8))
    at = random.randrange(name, max(name + 1, len(record) - size + 1)) if random.random() < 0.9 else 0
    value = random.choice((*LENGTHS, random.randrange(64)))
    return record[:at] + value.to_bytes(8, "little")[:size] + record[at + size :]


# --- pickles ---


def pickles(data: bytes, random: Random) -> bytes:
    """A snapshot with other values, or with opcodes left out, doubled or exchanged."""
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
    """The database in one file, without a log beside it."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def databases(data: bytes, random: Random) -> bytes:
    """A database with other values in its rows, other tables, or another version."""
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
