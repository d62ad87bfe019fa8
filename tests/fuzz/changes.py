"""Changes of one input: of a value of its document, or of the words of its text."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

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
    """Exchange, leave out or double one value of a document, in place."""
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
