"""The lines of keys in a TOML text, for error messages. tomlkit does not know them."""

import re
from collections.abc import Iterator

from vramtui.core.base import toml
from vramtui.presets.schema import Key

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN_VALUE = re.compile(r"[^,\]}\n#]*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'", re.DOTALL
)


def key_lines(text: str) -> dict[Key, int]:
    """Return the line, from 1, of every table, key and array element of valid TOML. If a key has several places, as a
    table and its parts, the first counts.
    """
    lines: dict[Key, int] = {}
    line, counted = 1, 0
    for key, position in _Scanner(text).statements():
        line += text.count("\n", counted, position)
        counted = position
        for length in range(1, len(key) + 1):
            lines.setdefault(key[:length], line)
    return lines


class _Scanner:
    """Yields each key of valid TOML with its offset, in the order of the text."""

    __slots__ = ("_elements", "at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._elements: dict[Key, int] = {}

    def statements(self) -> Iterator[tuple[Key, int]]:
        table: Key = ()
        while True:
            self._skip(_BLANK)
            if self.at >= len(self.text):
                return
            start = self.at
            if self.text[start] != "[":
                yield from self._pair(table)
                continue
            brackets = 2 if self.text.startswith("[[", start) else 1
            self.at += brackets
            *heads, last = self._key()
            self.at += brackets
            table = ()
            for part in heads:
                table = (*table, part)
                if table in self._elements:
                    table = (*table, self._elements[table])
            table = (*table, last)
            if brackets == 2:
                self._elements[table] = self._elements.get(table, -1) + 1
                table = (*table, self._elements[table])
            yield table, start

    def _pair(self, table: Key) -> Iterator[tuple[Key, int]]:
        start = self.at
        key = (*table, *self._key())
        yield key, start
        self.at += 1
        self._skip(_SPACE)
        yield from self._value(key)

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            if self.text[self.at] in "\"'":
                parts.extend(toml.loads(f"{self._skip(_STRING)} = 0"))
            else:
                parts.append(self._skip(_BARE_KEY))
            self._skip(_SPACE)
            if self.text[self.at] != ".":
                return tuple(parts)
            self.at += 1

    def _value(self, key: Key) -> Iterator[tuple[Key, int]]:
        first = self.text[self.at]
        if first in "\"'":
            self._skip(_STRING)
        elif first in "[{":
            yield from self._inside(key, "]" if first == "[" else "}")
        else:
            self._skip(_PLAIN_VALUE)

    def _inside(self, key: Key, closing: str) -> Iterator[tuple[Key, int]]:
        """Read an array or an inline table up to its end."""
        self.at += 1
        number = 0
        while True:
            self._skip(_BLANK)
            character = self.text[self.at]
            if character == closing:
                break
            if character == ",":
                self.at += 1
            elif closing == "}":
                yield from self._pair(key)
            else:
                yield (*key, number), self.at
                yield from self._value((*key, number))
                number += 1
        self.at += 1

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError("not TOML")  # only text that is not TOML comes here
        self.at = match.end()
        return match[0]
