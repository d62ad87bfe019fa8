"""A TOML text: set and remove values without changing anything else, and find the lines of keys."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.presets.schema import Key

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN_VALUE = re.compile(r"[^,\]}\n#]*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'", re.DOTALL
)


def set_values(text: str, values: Mapping[str, Any]) -> str:
    """Return `text` with other values at dotted keys. Missing tables are added; None removes a key or a table.

    Raises:
        UserError: a part of a key is not a table, or the text cannot be changed without changing something else.
    """
    import tomlkit  # noqa: PLC0415 - only writing pays for tomlkit
    from tomlkit.items import AbstractTable  # noqa: PLC0415 - only writing pays for tomlkit

    document = tomlkit.parse(text)
    wanted = toml.loads(text)
    for key, value in values.items():
        *heads, last = key.split(".")
        table: Any = document
        plain: Any = wanted
        for part in heads:
            if part not in table:
                if value is None:
                    break
                _insert(table, part, tomlkit.table())
            table = table[part]
            if not isinstance(table, AbstractTable) and not isinstance(table, Mapping):
                raise UserError(f"{key} cannot be set: {part} is not a table")
            plain = plain.setdefault(part, {})
        else:
            if value is None:
                plain.pop(last, None)
                if last in table:
                    del table[last]
                continue
            item = tomlkit.item(list(value) if isinstance(value, tuple) else value)
            plain[last] = item.unwrap()
            if last in table:
                table[last] = item
            else:
                _insert(table, last, item)
    after = tomlkit.dumps(document)
    if "\r\n" in text:
        after = after.replace("\r\n", "\n").replace("\n", "\r\n")
    try:
        is_right = toml.loads(after) == wanted
    except ValueError:
        is_right = False
    if not is_right:
        raise UserError(f"{', '.join(values)} cannot be set here; edit the text")
    return after


def _insert(table: Any, name: str, item: Any) -> None:  # noqa: ANN401 - tomlkit's tables share no type with their document
    """Put a new key behind the last one of its table, before the comments of what follows."""
    from tomlkit import nl  # noqa: PLC0415 - only writing pays for tomlkit
    from tomlkit.container import Container  # noqa: PLC0415 - only writing pays for tomlkit
    from tomlkit.items import AoT, SingleKey, Table  # noqa: PLC0415 - only writing pays for tomlkit

    container = table.value if isinstance(table, Table) else table
    if isinstance(item, Table) or not isinstance(container, Container):
        if isinstance(item, Table) and container.body:
            item.append(None, nl()) if isinstance(table, Table) else container.add(nl())
        table[name] = item
        return
    plain = [
        at for at, (key, part) in enumerate(container.body) if key is not None and not isinstance(part, (AoT, Table))
    ]
    comments = 0
    while not plain and comments < len(container.body) and type(container.body[comments][1]).__name__ == "Comment":
        comments += 1
    place = plain[-1] + 1 if plain else comments
    if place < len(container.body):
        container._insert_at(place, SingleKey(name), item)  # noqa: SLF001 - tomlkit has no public way
    else:
        table[name] = item


def value_text(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = []
        for name, part in value.items():
            is_bare = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
            pairs.append(f"{name if is_bare else value_text(name)} = {value_text(part)}")
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def keep_line_ends(before: str, after: str) -> str:
    """Return `after` with the line ends of `before` in lines that stayed: text areas make all line ends the same."""
    if "\r" not in before and before.isascii():
        return after.replace("\r\n", "\n")

    def bare(line: str) -> tuple[str, bool]:
        text = line.splitlines()[0]
        return text, text != line

    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    top, below = same_ends([bare(line) for line in old], [bare(line) for line in new])
    newline = "\r\n" if before.count("\r\n") * 2 > before.count("\n") else "\n"
    middle = [text + newline if has_end else text for text, has_end in map(bare, new[top : len(new) - below])]
    return "".join((*old[:top], *middle, *old[len(old) - below :]))


def same_ends(before: Sequence[object], after: Sequence[object]) -> tuple[int, int]:
    """Count the lines that are the same at the top, and those that are the same at the bottom."""
    most = min(len(before), len(after))
    top = next((i for i in range(most) if before[i] != after[i]), most)
    return top, next((i for i in range(most - top) if before[-1 - i] != after[-1 - i]), most - top)


def key_lines(text: str) -> dict[Key, int]:
    """Return the line, from 1, of every table, key and array element of valid TOML. If a key has several places, as a
    table and its parts, the first counts. tomlkit does not know lines.
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
        if first not in "[{":
            self._skip(_STRING if first in "\"'" else _PLAIN_VALUE)
            return
        closing, number = "]" if first == "[" else "}", 0
        self.at += 1
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
            raise ValueError("not TOML")  # key_lines takes only valid TOML
        self.at = match.end()
        return match[0]
