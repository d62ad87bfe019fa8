"""The standard library's TOML reader, or the package it came from where Python is older than 3.11."""

import re
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from vramtui.core.base.file_limits import MOST_KEY_PARTS, PRESET

_PART = r"""[ \t]*[\w\-"']+[ \t]*"""
# At the start of a line, in a table's header, or in a table in one line; it may stand in a text of several lines too.
_LONG_KEY = re.compile(rf"(?:^[ \t\[]*|[{{,]){_PART}(?:\.{_PART}){{{MOST_KEY_PARTS}}}", re.MULTILINE)


class TooMuch(tomllib.TOMLDecodeError):
    """More of something than a file of ours has."""

    def __init__(self, message: str) -> None:
        ValueError.__init__(self, message)  # not the parser's own, which takes other arguments from Python 3.14 on


def loads(text: str, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a TOML text.

    Raises:
        tomllib.TOMLDecodeError: it is not TOML, has more values than any preset, or a key of more than MOST_KEY_PARTS
            parts; says where.
    """
    if text.count("=") + text.count(",") + text.count("\n[") > (PRESET.count or 0):
        raise TooMuch(f"more than {PRESET.count:,} values")
    # Looked for where there are dots enough for one: it takes a sixth of the time that reading does.
    match = _LONG_KEY.search(text) if text.count(".") >= MOST_KEY_PARTS else None
    if match is not None:
        line = text.count("\n", 0, match.start()) + 1
        raise TooMuch(f"a key of more than {MOST_KEY_PARTS} parts (at line {line}, column 1)")
    return tomllib.loads(text, parse_float=parse_float)
