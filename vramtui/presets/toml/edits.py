"""One value of a preset's text changed and every other byte left: comments, order, spacing, line endings. A text field
makes all line ends the same; they become what they were.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from vramtui.core.base import toml
from vramtui.presets.reader import finite_float, syntax_problem
from vramtui.presets.schema import Key
from vramtui.presets.toml.positions import Pair, TomlLayout, layout_of

TABLES = ("model", "run", "parallel", "rule", "match", "measured")
_ROOM = 1 << 19  # characters read before a text is given up, a fifth of a second
_LINES = 64  # that a statement may be long
_NOT_BREAKS = re.compile(r"[^\r\n]")
_LONG = re.compile(r"(\"{3}|'{3})(\r?\n)?")
_NOT_IN_LONG = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def with_ends_of(before: str, after: str) -> str:
    """`after`, where each line from the beginning and from the end that `before` has too ends as it does there; the
    lines between end as most of `before`'s do.
    """
    if "\r" not in before and before.isascii():
        return after.replace("\r\n", "\n")
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    head = _same(old, new)
    tail = min(_same(old[::-1], new[::-1]), len(old) - head, len(new) - head)
    usual = "\r\n" if before.count("\r\n") * 2 > before.count("\n") else "\n"
    middle = [line if (bare := _bare(line)) == line else bare + usual for line in new[head : len(new) - tail]]
    return "".join((*old[:head], *middle, *old[len(old) - tail :]))


def _same(old: list[str], new: list[str]) -> int:
    """How many lines at the beginning are the same but for their ends; an end or none is a difference."""
    count = 0
    for one, other in zip(old, new, strict=False):
        if _bare(one) != _bare(other) or (one == _bare(one)) != (other == _bare(other)):
            break
        count += 1
    return count


def _bare(line: str) -> str:
    return line[: len(line) - len(_end(line))]


def _end(line: str) -> str:
    if line.endswith("\r\n"):
        return "\r\n"
    return line[-1:] if line[-1:] and not line[-1:].splitlines()[0] else ""


class Readable(msgspec.Struct, frozen=True):
    """What of a text can be read: `text` is as long as the original, its lines that are no TOML blank."""

    text: str
    tables: Mapping[str, Any]

    @property
    def layout(self) -> TomlLayout:
        """Where everything stands; the offsets are those of the original text too."""
        return layout_of(self.text)


@lru_cache(maxsize=8)
def readable(text: str) -> Readable:
    """What a TOML reader makes of `text` once the statements it cannot read are passed over."""
    rest, room = text, _ROOM
    while room > 0:
        tables, wrong = _loaded(rest)
        if tables is not None:
            return Readable(rest, tables)
        rest, looked_at = _without_statement(rest, wrong)
        room -= looked_at
    return Readable(_NOT_BREAKS.sub(" ", text), {})


def _loaded(text: str) -> tuple[dict[str, Any] | None, int]:
    """The tables of `text`, or None and the line that keeps it from being TOML."""
    try:
        return toml.loads(text, parse_float=finite_float), 0
    except RecursionError:
        return None, text.count("\n") + 1
    except ValueError as error:
        return None, syntax_problem(text, str(error)).line or 1


def _without_statement(text: str, wrong: int) -> tuple[str, int]:
    """`text` with the first line blank of the statement that fails in line `wrong`, and how many characters were read
    to find it. It is the one behind the last line up to which all is well: an array that is not closed fails far
    behind its first line.
    """
    lines = text.split("\n")
    at, looked_at = min(wrong, len(lines)) - 1, len(text)
    for before in range(at, max(at - _LINES, -1), -1):
        upto = "".join(f"{line}\n" for line in lines[:before])
        looked_at += len(upto)
        if _loaded(upto)[0] is not None:
            at = before
            break
    while at > 0 and not lines[at].strip():
        at -= 1
    lines[at] = _NOT_BREAKS.sub(" ", lines[at])
    return "\n".join(lines), looked_at


def one_value(raw: str) -> bool:
    """Whether `raw` is one TOML value and nothing else: no comment behind it, no further line."""
    whole = f"v = {raw}"
    try:
        if set(toml.loads(whole)) != {"v"}:
            return False
    except (ValueError, RecursionError):
        return False
    pair = layout_of(whole).pairs[-1]
    return pair.value_start == 4 and pair.value_end == len(whole)


def quoted(value: str, like: str = "") -> str:
    """`value` as a TOML string; in single quotes, or over several lines, where `like`, the old one's text, is so and
    they can hold it.
    """
    long = _LONG.match(like)
    if long is not None and not _NOT_IN_LONG.search(value):
        return _over_lines(value, long[1], long[2] or "", break_of(like))
    if like[:1] == "'" and not re.search(r"['\x00-\x08\x0a-\x1f\x7f]", value):
        return f"'{value}'"
    return (
        '"' + "".join(_ESCAPES.get(c) or (c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}") for c in value) + '"'
    )


def _over_lines(value: str, quotes: str, first: str, newline: str) -> str:
    """`value` between three quotes; `first` is the line end behind the first three, which is no part of it."""
    if quotes == "'''" and "'''" in value:
        quotes = '"""'
    inside = value if quotes == "'''" else value.replace("\\", "\\\\").replace('"""', '""\\"')
    shield = first or ("\n" if value[:1] == "\n" else "")
    return f"{quotes}{shield}{inside}{quotes}".replace("\r\n", "\n").replace("\n", newline)


def put_value(text: str, key: Key, value: str) -> str:
    """`text` with the TOML `value` at `key`: in place of the one that stands there, or else on a line of its own in its
    table, which is added where there is none. A number behind a list's key is that of an element that is there.
    """
    seen = readable(text)
    pair = seen.layout.value(key)
    if pair is not None:
        return text[: pair.value_start] + value + text[pair.value_end :]
    return _added(text, seen.layout, key, value)


def take_value(text: str, key: Key) -> str:
    """`text` without the value at `key`, or without the whole table that `key` is; what else stands on its line goes
    with it.
    """
    layout = readable(text).layout
    inside = [pair for pair in layout.pairs if pair.key[: len(key)] == key and not pair.inline]
    headers = [header for header in layout.headers if header.key[: len(key)] == key]
    spans = [(pair.start, pair.value_end) for pair in inside] + [(header.start, header.end) for header in headers]
    if not spans:
        pair = layout.pair(key)
        return _without_inline(text, layout, pair) if pair is not None else text
    for start, end in sorted(spans, reverse=True):
        first, last = line_start(text, start), line_end(text, end)
        text = text[:first] + text[last:]
    if headers:
        text = _without_gap(text, min(line_start(text, min(start for start, _ in spans)), len(text)))
    return text


def _without_inline(text: str, layout: TomlLayout, pair: Pair) -> str:
    """A pair within braces goes with one of the commas beside it."""
    inline = [other for other in layout.pairs if other.inline and other.table == pair.table]
    number = inline.index(pair)
    if number + 1 < len(inline):
        return text[: pair.start] + text[inline[number + 1].start :]
    start = inline[number - 1].value_end if number else pair.start
    return text[:start] + text[pair.value_end :]


def _without_gap(text: str, at: int) -> str:
    """One of the two runs of blank lines that a table which went had around it."""
    before = text[:at]
    start = before.rstrip("\r\n")
    if text[at:].strip() and len(before) - len(start) > 0 and text[at:][:1] in "\r\n":
        return before + text[at:].lstrip("\r\n")
    return start + break_of(text) if not text[at:].strip() and start else text


def _added(text: str, layout: TomlLayout, key: Key, value: str) -> str:
    elements = [key[: at + 1] for at, part in enumerate(key) if isinstance(part, int)]
    if any(layout.value(element) is None and layout.header(element) is None for element in elements):
        return text
    for depth in range(len(key) - 1, -1, -1):
        table, rest = key[:depth], key[depth:]
        whole = layout.value(table) if depth else None
        if whole is not None:
            return _into_braces(text, layout, whole, f"{_key_text(rest)} = {value}")
        neighbours = [pair for pair in layout.pairs if pair.key[:depth] == table and not pair.inline]
        dotted = [pair for pair in neighbours if len(pair.table) < depth]
        if dotted and depth:
            last = dotted[-1]
            return _after(text, last, f"{_key_text(key[len(last.table) :])}", value)
        header = layout.header(table)
        if len(rest) == 1 and (header is not None or not depth):
            own = [pair for pair in neighbours if pair.table == table]
            if own:
                return _after(text, own[-1], _key_text(rest), value)
            return _first_in(text, header.end if header else None, f"{_key_text(rest)} = {value}")
    return _in_new_table(text, layout, key, value)


def _after(text: str, pair: Pair, name: str, value: str) -> str:
    """A line for `name` after `pair`'s, spaced as that one is."""
    start = line_start(text, pair.start)
    indent = text[start : pair.start]
    joint = " = " if re.search(r"\s=|=\s", text[pair.start : pair.value_start]) else "="
    return _line_at(text, line_end(text, pair.value_end), f"{indent}{name}{joint}{value}")


def _first_in(text: str, header_end: int | None, line: str) -> str:
    if header_end is not None:
        return _line_at(text, line_end(text, header_end), line)
    comment = re.match(r"(?:#[^\n]*\n)*", text)
    return _line_at(text, comment.end() if comment else 0, line)


def _into_braces(text: str, layout: TomlLayout, whole: Pair, pair: str) -> str:
    inline = [other for other in layout.pairs if other.inline and other.table == whole.key]
    if not text[whole.value_start : whole.value_end].startswith("{"):
        return text  # something that is no table stands there, which is told of as a problem
    if inline:
        at = inline[-1].value_end
        return f"{text[:at]}, {pair}{text[at:]}"
    return f"{text[: whole.value_start]}{{ {pair} }}{text[whole.value_end :]}"


def _in_new_table(text: str, layout: TomlLayout, key: Key, value: str) -> str:
    """A table of its own behind those that come before it: its parent with all its parts, or in the usual order."""
    rank = TABLES.index(key[0]) if key[0] in TABLES else len(TABLES)
    places = [(header.key, header.end) for header in layout.headers]
    places += [(pair.key, pair.value_end) for pair in layout.pairs]
    ends = [end for place, end in places if place[0] == key[0]]
    if not ends:
        ends = [end for place, end in places if place[0] in TABLES[:rank]]
        ends += [pair.value_end for pair in layout.pairs if not pair.table]
    at = line_end(text, max(ends)) if ends else 0
    newline = break_of(text)
    head, tail = text[:at], text[at:]
    if head and not head.endswith("\n"):
        head += newline
    gap = newline if head else ""
    block = f"[{_key_text(key[:-1])}]{newline}{key[-1]} = {value}{newline}"
    return f"{head}{gap}{block}{tail}" if not tail.partition("\n")[0].strip() else f"{head}{gap}{block}{newline}{tail}"


def _line_at(text: str, at: int, line: str) -> str:
    newline = break_of(text)
    if at and text[at - 1] != "\n":
        return f"{text[:at]}{newline}{line}{text[at:]}"
    return f"{text[:at]}{line}{newline}{text[at:]}"


def _key_text(key: Key) -> str:
    return ".".join(str(part) if _BARE.fullmatch(str(part)) else quoted(str(part)) for part in key)


def break_of(text: str) -> str:
    """The line break that most lines of `text` have."""
    windows = text.count("\r\n")
    return "\r\n" if windows * 2 > text.count("\n") else "\n"


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1
