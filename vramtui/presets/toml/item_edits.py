"""One element of a list put in, taken out or moved in a preset's text, and every other byte left. A list is an array in
brackets, on one line or several, or stands as `[[tables]]`.
"""

import re

from vramtui.presets.schema import Key
from vramtui.presets.toml.edits import break_of, line_end, line_start, put_value, quoted, readable, take_value
from vramtui.presets.toml.positions import Pair, TableHeader, TomlLayout

_BEHIND = re.compile(r"[ \t]*(,?)[ \t]*(?:#[^\n]*)?\r?$")
_BLANK_ABOVE = re.compile(r"\n[ \t]*\r?\n(?:[ \t]*#[^\n]*\n)*\Z")
_COMMA = re.compile(r"[ \t]*,")


def has_item(text: str, key: Key) -> bool:
    """Whether there is an element at `key`, whose last part is its number."""
    layout = readable(text).layout
    return layout.value(key) is not None or layout.header(key) is not None


def put_item(text: str, key: Key, value: str) -> str:
    """`text` with one more element of the TOML `value` at the end of the list at `key`, which is begun where there is
    none. `[[tables]]` stay as they are: see `copy_item`.
    """
    layout = readable(text).layout
    whole, elements = layout.value(key), layout.elements_of(key)
    if elements:
        return _behind(text, elements[-1], value)
    if whole is None:
        return text if layout.tables_of(key) else put_value(text, key, f"[{value}]")
    at = whole.value_start + 1
    return text if text[whole.value_start] != "[" else f"{text[:at]}{value}{text[at:].lstrip(' ')}"


def copy_item(text: str, key: Key) -> str:
    """`text` with the element at `key` a second time, behind itself."""
    layout = readable(text).layout
    element = layout.value(key)
    if element is not None:
        return _behind(text, element, text[element.value_start : element.value_end])
    header = layout.header(key)
    span = _body(text, layout, header) if header is not None else None
    if header is None or span is None:
        return text
    return f"{text[: span[1]]}{_gap(text, header)}{text[header.start : span[1]]}{text[span[1] :]}"


def take_item(text: str, key: Key) -> str:
    """`text` without the element at `key`; a line that it has to itself goes with its comment."""
    layout = readable(text).layout
    element, number = layout.value(key), key[-1]
    if element is None or not isinstance(number, int):
        return take_value(text, key)
    elements = layout.elements_of(key[:-1])
    if _alone(text, element):
        return text[: line_start(text, element.start)] + text[line_end(text, element.value_end) :]
    if number + 1 < len(elements):
        return text[: element.start] + text[elements[number + 1].start :]
    start, end = element.start, element.value_end
    comma = _COMMA.match(text, end)
    end = comma.end() if comma is not None else end
    if number and not text[elements[number - 1].value_end : start].strip(", \t"):
        start = elements[number - 1].value_end
    return text[:start] + text[end:].removeprefix(" " if start == element.start else "")


def swap_items(text: str, key: Key) -> str:
    """`text` with the element at `key` and the one behind it in each other's place; comments on their lines go along.
    The same text where they cannot be: there is none behind, or a table is written in several places.
    """
    layout = readable(text).layout
    other = (*key[:-1], int(key[-1]) + 1)
    one, two = layout.value(key), layout.value(other)
    if one is not None and two is not None:
        if _alone(text, one) and _alone(text, two):
            return _swapped(text, _line(text, one), _line(text, two), commas=True)
        return _swapped(text, (one.value_start, one.value_end), (two.value_start, two.value_end))
    first, second = layout.header(key), layout.header(other)
    if first is None or second is None:
        return text
    spans = _body(text, layout, first), _body(text, layout, second)
    return text if spans[0] is None or spans[1] is None else _swapped(text, spans[0], spans[1])


def value_text(value: object) -> str:
    """A value as TOML on one line: tables in braces."""
    if isinstance(value, dict):
        inside = ", ".join(f"{name} = {value_text(part)}" for name, part in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else str(value)


def _gap(text: str, header: TableHeader) -> str:
    """What stands between two tables of a list: a blank line where there is one before this one."""
    start = line_start(text, header.start)
    newline = break_of(text)
    blank = not start or _BLANK_ABOVE.search(text[:start]) is not None
    return newline * (2 if blank else 1) + text[start : header.start]


def _swapped(text: str, one: tuple[int, int], two: tuple[int, int], *, commas: bool = False) -> str:
    first, second = text[slice(*one)], text[slice(*two)]
    if commas:
        first, second = _with_comma(first, _comma(second)), _with_comma(second, _comma(first))
    return text[: one[0]] + second + text[one[1] : two[0]] + first + text[two[1] :]


def _body(text: str, layout: TomlLayout, header: TableHeader) -> tuple[int, int] | None:
    """The span from a `[[table]]` line's brackets to the end of its last line; None where a part stands elsewhere."""
    places = sorted(
        [(one.key, one.start, one.end) for one in layout.headers]
        + [(one.key, one.start, one.value_end) for one in layout.pairs if not one.inline],
        key=lambda place: place[1],
    )
    mine = [place[0][: len(header.key)] == header.key for place in places]
    first, last = mine.index(True), len(mine) - 1 - mine[::-1].index(True)
    if not all(mine[first : last + 1]):
        return None
    end = line_end(text, places[last][2])
    return header.end, end - len(text[:end]) + len(text[:end].rstrip("\r\n"))


def _alone(text: str, element: Pair) -> bool:
    """Whether an element has its lines to itself, but for a comment."""
    end = line_end(text, element.value_end)
    before = text[line_start(text, element.start) : element.start]
    return not before.strip() and _BEHIND.match(text[element.value_end : end].rstrip("\n")) is not None


def _line(text: str, element: Pair) -> tuple[int, int]:
    end = line_end(text, element.value_end)
    return element.start, end - (len(text[:end]) - len(text[:end].rstrip("\r\n")))


def _behind(text: str, element: Pair, value: str) -> str:
    end = element.value_end
    if not _alone(text, element):
        return f"{text[:end]}, {value}{text[end:]}"
    indent = text[line_start(text, element.start) : element.start]
    after = line_end(text, end)
    comma = _COMMA.match(text, end) is not None
    line = f"{indent}{value}{',' if comma else ''}{break_of(text)}"
    return f"{text[:end]}{'' if comma else ','}{text[end:after]}{line}{text[after:]}"


def _comma(line: str) -> bool:
    """Whether a comma follows the value that `line` begins with."""
    value = _value_end(line)
    return _COMMA.match(line, value) is not None


def _with_comma(line: str, wanted: bool) -> str:
    value = _value_end(line)
    comma = _COMMA.match(line, value)
    if (comma is not None) == wanted:
        return line
    return f"{line[:value]},{line[value:]}" if comma is None else line[:value] + line[comma.end() :]


def _value_end(line: str) -> int:
    """Where the value ends that `line`, a piece of an array, begins with."""
    element = readable(f"v = [\n{line}\n]").layout.value(("v", 0))
    return len(line) if element is None else element.value_end - len("v = [\n")
