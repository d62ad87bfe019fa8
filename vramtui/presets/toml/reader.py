"""The standard library's TOML reader, or the package it came from where Python is older than 3.11."""

import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# The reader needs a time that grows with the square of a key's parts: 50,000 of them take longer than anybody waits.
MOST_PARTS = 100


class TooManyParts(tomllib.TOMLDecodeError):
    """A key of more than MOST_PARTS parts, in a line with this number."""

    def __init__(self, number: int) -> None:
        # Not the parser's own, which takes other arguments from Python 3.14 on.
        ValueError.__init__(self, f"a key of more than {MOST_PARTS} parts (at line {number}, column 1)")


def loads(text: str, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """What a TOML text says.

    Raises:
        tomllib.TOMLDecodeError: it is not TOML, or has a key of more than MOST_PARTS parts; says where.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MOST_PARTS and line.partition("=")[0].count(".") > MOST_PARTS and line.lstrip()[:1] != "#":
            raise TooManyParts(number)
    return tomllib.loads(text, parse_float=parse_float)
