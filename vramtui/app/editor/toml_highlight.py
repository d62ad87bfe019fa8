"""Which stretches of a line of TOML are what: enough to colour it, right or wrong as it may be."""

import re
from collections.abc import Iterator
from typing import Literal

Sort = Literal["comment", "table", "key", "string", "number", "word"]
Stretch = tuple[int, int, Sort]
SORTS: dict[str, Sort] = {"comment": "comment", "string": "string", "number": "number", "word": "word"}

_TABLE = re.compile(r"\s*\[\[?[^\[\]#]*\]\]?\s*(?=#|$)")
_KEY = re.compile(
    r"""\s*(?P<key>(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_TOKEN = re.compile(
    r"""(?P<comment>\#.*)
    |(?P<fence>\"{3}|'{3})
    |(?P<string>"(?:\\.|[^"\\])*"?|'[^']*'?)
    |(?P<number>[+-]?(?<![\w.])(?:0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|\d[\d_]*(?:\.[\d_]+)?(?:[eE][+-]?\d+)?))
    |(?P<word>\b(?:true|false|inf|nan)\b)""",
    re.VERBOSE,
)


def open_fences(lines: list[str]) -> list[str]:
    """For each line the quotes of the string that it begins within; empty outside of one."""
    fence = ""
    begins = []
    for line in lines:
        begins.append(fence)
        if fence or '"""' in line or "'''" in line:
            fence = _after(line, fence)
    return begins


def stretches(line: str, fence: str = "") -> Iterator[Stretch]:
    """The stretches of `line` that have a colour, from left to right; what begins within `fence` is a string."""
    at = 0
    if fence:
        end = line.find(fence)
        if end < 0:
            yield 0, len(line), "string"
            return
        at = end + len(fence)
        yield 0, at, "string"
    elif table := _TABLE.match(line):
        yield 0, table.end(), "table"
        at = table.end()
    elif key := _KEY.match(line):
        yield key.start("key"), key.end("key"), "key"
        at = key.end()
    yield from _values(line, at)


def _values(line: str, at: int) -> Iterator[Stretch]:
    while found := _TOKEN.search(line, at):
        if found.lastgroup == "fence":
            end = line.find(found.group(), found.end())
            at = len(line) if end < 0 else end + 3
            yield found.start(), at, "string"
            continue
        at = found.end()
        yield found.start(), at, SORTS[found.lastgroup or ""]


def _after(line: str, fence: str) -> str:
    """The quotes that are open after `line`."""
    at = 0
    while True:
        if fence:
            end = line.find(fence, at)
            if end < 0:
                return fence
            at, fence = end + 3, ""
        found = _TOKEN.search(line, at)
        if found is None or found.lastgroup == "comment":
            return ""
        at = found.end()
        if found.lastgroup == "fence":
            fence = found.group()
