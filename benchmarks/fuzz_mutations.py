"""Changes of an input for a fuzz target: of its bytes, its pieces and its values."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

PIECES = (
    *(b"", b"\x1b[2J", b"\x9b", b"\n", b"\r", b"\t", b"\0", b",", b'"', b"'''", b"[", b"]", b"{", b"}", b"=", b"#"),
    *(b"-1", b"0", b"nan", b"1e999", b"99999999999999999999", b"null", b"true", b"\\ud800", b"\xff"),
    *("\u202e".encode(), "\u2028".encode(), "\x9b".encode(), "\ud83d\ude00".encode("utf-16", "surrogatepass")),
)
LARGEST = 1 << 16  # bytes
DEEP = json.loads("[" * 200 + "]" * 200)
# What a reader may not expect in the place of a value that it knows.
VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2, 7, 255, 1 << 31, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63), 10**30),
    *(0.0, -0.5, 1e-320, 1e308, float("inf"), float("nan"), True, False, None, "", "0", "auto", "none", "a" * 5000),
    *([], {}, [[]], [{}], [None], {"": None}, DEEP, "\x1b[2J\x9b", "a\u202eb\u2028", "\ud800", "../../x", "$(x)", "{{"),
)
# Sizes and counts.
NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    63,
    64,
    127,
    128,
    1 << 12,
    (1 << 16) + 1,
    1 << 20,
    1 << 31,
    1 << 40,
    1 << 53,
    -1,
    0.5,
)
# Changes of one input.
SEVERAL = (1, 1, 1, 2, 3, 6)
_PAIR = re.compile(r"^(?P<key>\s*[-\w.\"]+\s*[=:]\s*)(?P<value>.*)$")


def edited(start: bytes, edits: list[tuple[float, int, bytes]], other: bytes, *, crossed: bool) -> bytes:
    """`start` with pieces exchanged: each edit is a place from 0 to 1, how many bytes go, and what comes."""
    data = start
    for where, length, new in edits:
        at = int(where * len(data))
        data = data[:at] + new + data[at + length :]
    if crossed and edits:
        at = int(edits[0][0] * min(len(data), len(other)))
        data = data[:at] + other[at:]
    return data[:LARGEST]


def encoded(text: str) -> bytes:
    """Text as UTF-8, lone surrogates too."""
    return text.encode("utf-8", "surrogatepass")


def mutated(data: bytes, other: bytes, random: Random) -> bytes:
    """One change of `data`: of its values, of its pieces, of single bytes, or its end exchanged for `other`'s."""
    kind = random.randrange(5)
    if kind <= 1:
        return with_other_values(data, random.getrandbits(32))
    if kind == 4 and data:
        changed = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 8))):
            changed[random.randrange(len(changed))] = random.randrange(256)
        return bytes(changed)
    edits = [(random.random(), random.randrange(24), random.choice(PIECES)) for _ in range(random.randint(1, 4))]
    return edited(data, edits, other, crossed=kind == 3)


def with_other_values(data: bytes, seed: int) -> bytes:
    """`data`, lines of JSON, TOML or YAML, with one to three of its values exchanged, left out or doubled."""
    random = Random(seed)
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(lines))
        lines[at] = _changed(lines[at], random)
    return encoded("\n".join(lines).encode("utf-8", "replace").decode())[:LARGEST]


def changed_somewhere(whole: Any, random: Random) -> None:  # noqa: ANN401 - JSON
    """Exchange, leave out or double one value of a document, in place."""
    places = list(_places(whole))
    if places:
        owner, key = random.choice(places)
        if isinstance(owner, dict | list):
            _change(owner, key, random)


def json_tree(data: bytes, other: bytes, random: Random) -> bytes:
    """A JSON document with other values, keys of another document, and small numbers where sizes stand."""
    whole, donor = json.loads(data), json.loads(other)
    for _ in range(random.choice(SEVERAL)):
        if random.random() < 0.5:
            changed_somewhere(whole, random)
        else:
            with_part_of(whole, donor, random)
    return json.dumps(whole).encode("utf-8", "surrogatepass")


def with_part_of(whole: Any, donor: Any, random: Random) -> None:  # noqa: ANN401 - JSON
    """A number exchanged for another one, or a key with its value taken from `donor`."""
    tables = [table for table in _tables(whole) if table]
    if not tables:
        return
    table = random.choice(tables)
    key = random.choice(list(table))
    if isinstance(table[key], int) and random.random() < 0.5:
        table[key] = random.choice(NUMBERS)
        return
    giving = [one for one in _tables(donor) if one]
    if giving:
        given = random.choice(giving)
        name = random.choice(list(given))
        table[name] = deepcopy(given[name])  # or a part of it could hold the whole


def _tables(whole: Any, depth: int = 0) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    found = [whole] if isinstance(whole, dict) else []
    parts = whole.values() if isinstance(whole, dict) else whole if isinstance(whole, list) else ()
    for part in list(parts)[:200] if depth < 12 else ():
        found += _tables(part, depth + 1)
    return found


def _changed(line: str, random: Random) -> str:
    if line[:1] in ("{", "["):
        try:
            whole = json.loads(line)
        except (ValueError, RecursionError):
            return line
        changed_somewhere(whole, random)
        return json.dumps(whole)
    pair = _PAIR.match(line)
    if pair is None:
        return line
    if random.random() < 0.2:
        return line + "\n" + line
    return pair["key"] + json.dumps(random.choice(VALUES))


def _change(owner: Any, key: Any, random: Random) -> None:  # noqa: ANN401 - JSON
    how = random.randrange(10)
    if how == 0:
        del owner[key]
    elif how == 1 and isinstance(owner, list):
        owner += [owner[key]] * random.choice((1, 40))
    elif how == 2 and isinstance(owner, dict):
        owner[random.choice(("", "x", "type", f"{key}s"))] = deepcopy(random.choice(VALUES))
    else:
        owner[key] = deepcopy(random.choice(VALUES))  # it may be changed in turn


def _places(whole: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - JSON
    pairs = whole.items() if isinstance(whole, dict) else enumerate(whole if isinstance(whole, list) else ())
    for key, value in list(pairs):
        yield whole, key
        if isinstance(value, dict | list) and depth < 20:
            yield from _places(value, depth + 1)
