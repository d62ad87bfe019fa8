"""Where each key and value of a TOML file stands: for error sentences, and to change one value and nothing else."""

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from vramtui.core.base import toml
from vramtui.presets.schema import Key

_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN_VALUE = re.compile(r"[^,\]}\n#]*")
_STRINGS = (
    re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\\n])*"'),
    re.compile(r"'[^'\n]*'"),
)


def key_of(written: str) -> Key:
    """A key from how people write it: `model.stages[2].channels`."""
    return tuple(int(number) if number else name for number, name in _PART.findall(written))


def key_lines(text: str) -> dict[Key, int]:
    """The line (from 1) of every table, key and array element of `text`, which has to be valid TOML.

    Where a key has several places (a table and its parts), the first counts.
    """
    lines: dict[Key, int] = {}
    line, counted = 1, 0
    for key, position in _Scanner(text).statements():
        line += text.count("\n", counted, position)
        counted = position
        for length in range(1, len(key) + 1):
            lines.setdefault(key[:length], line)
    return lines


class Pair(msgspec.Struct, frozen=True, gc=False):
    """`key = value` in a text, by offsets: where the statement starts, where its value starts and ends. `table` is the
    header's or inline table's key that it stands under, and `inline` whether that one is written in braces.
    """

    key: Key
    table: Key
    start: int
    value_start: int
    value_end: int
    inline: bool


class TableHeader(msgspec.Struct, frozen=True, gc=False):
    """A `[table]` line, from its first bracket to behind its last."""

    key: Key
    start: int
    end: int


class TomlLayout(msgspec.Struct, frozen=True):
    """Every pair and header of a text, in its order; the pairs of an inline table come before its own. `elements` are
    what stands between the brackets of arrays, as pairs that start where their value does.
    """

    pairs: tuple[Pair, ...]
    headers: tuple[TableHeader, ...]
    elements: tuple[Pair, ...] = ()

    def pair(self, key: Key) -> Pair | None:
        """The pair of `key`, where one stands for it."""
        return next((pair for pair in self.pairs if pair.key == key), None)

    def header(self, key: Key) -> TableHeader | None:
        """The `[table]` line of `key`."""
        return next((header for header in self.headers if header.key == key), None)

    def value(self, key: Key) -> Pair | None:
        """The pair of `key`, or the element."""
        if key and isinstance(key[-1], int):
            return next((element for element in self.elements if element.key == key), None)
        return self.pair(key)

    def elements_of(self, key: Key) -> list[Pair]:
        """What stands in the brackets at `key`, in its order."""
        return [element for element in self.elements if element.table == key]

    def tables_of(self, key: Key) -> list[TableHeader]:
        """The `[[table]]` lines of `key`, in their order."""
        return [header for header in self.headers if header.key[:-1] == key and isinstance(header.key[-1], int)]


@lru_cache(maxsize=8)
def layout_of(text: str) -> TomlLayout:
    """Where everything in `text` stands, which has to be valid TOML."""
    scanner = _Scanner(text)
    for _ in scanner.statements():
        pass
    return TomlLayout(tuple(scanner.pairs), tuple(scanner.headers), tuple(scanner.elements))


class _Scanner:
    """Walks valid TOML; yields each key with its offset, in the order of the text, and keeps what it walked over."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.pairs: list[Pair] = []
        self.headers: list[TableHeader] = []
        self.elements: list[Pair] = []
        self._elements: dict[Key, int] = {}

    def statements(self) -> Iterator[tuple[Key, int]]:
        table: Key = ()
        while True:
            self._skip(_BLANK)
            if self.at >= len(self.text):
                return
            start = self.at
            if self.text[start] == "[":
                table = self._header()
                yield table, start
            else:
                yield from self._pair(table)

    def _header(self) -> Key:
        start = self.at
        brackets = 2 if self.text.startswith("[[", self.at) else 1
        self.at += brackets
        key = self._current(self._key())
        self.at += brackets
        if brackets == 2:
            number = self._elements[key] = self._elements.get(key, -1) + 1
            key = (*key, number)
        self.headers.append(TableHeader(key, start, self.at))
        return key

    def _current(self, key: tuple[str, ...]) -> Key:
        """`key` with the running number of every array of tables it goes through, but for the last part."""
        whole: Key = ()
        for part in key[:-1]:
            whole = (*whole, part)
            if whole in self._elements:
                whole = (*whole, self._elements[whole])
        return (*whole, *key[-1:])

    def _pair(self, table: Key, *, inline: bool = False) -> Iterator[tuple[Key, int]]:
        start = self.at
        key = (*table, *self._key())
        yield key, start
        self.at += 1
        self._skip(_SPACE)
        value = self.at
        yield from self._value(key)
        end = value + len(self.text[value : self.at].rstrip())
        self.pairs.append(Pair(key, table, start, value, end, inline))

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            if self.text[self.at] in "\"'":
                start = self.at
                self._string()
                parts.extend(toml.loads(f"{self.text[start : self.at]} = 0"))
            else:
                parts.append(self._skip(_BARE_KEY))
            self._skip(_SPACE)
            if self.text[self.at] != ".":
                return tuple(parts)
            self.at += 1

    def _value(self, key: Key) -> Iterator[tuple[Key, int]]:
        first = self.text[self.at]
        if first in "\"'":
            self._string()
        elif first == "[":
            yield from self._array(key)
        elif first == "{":
            yield from self._inline_table(key)
        else:
            self._skip(_PLAIN_VALUE)

    def _array(self, key: Key) -> Iterator[tuple[Key, int]]:
        self.at += 1
        number = 0
        while True:
            self._skip(_BLANK)
            if self.text[self.at] == "]":
                break
            if self.text[self.at] == ",":
                self.at += 1
                continue
            start = self.at
            yield (*key, number), start
            yield from self._value((*key, number))
            end = start + len(self.text[start : self.at].rstrip())
            self.elements.append(Pair((*key, number), key, start, start, end, inline=True))
            number += 1
        self.at += 1

    def _inline_table(self, key: Key) -> Iterator[tuple[Key, int]]:
        self.at += 1
        while True:
            self._skip(_BLANK)
            if self.text[self.at] == "}":
                break
            if self.text[self.at] == ",":
                self.at += 1
                continue
            yield from self._pair(key, inline=True)
        self.at += 1

    def _string(self) -> None:
        for pattern in _STRINGS:
            match = pattern.match(self.text, self.at)
            if match:
                self.at = match.end()
                return
        raise ValueError("not a string")  # only text that is no TOML comes here

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError("not TOML")
        self.at = match.end()
        return match[0]
