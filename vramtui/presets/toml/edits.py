"""Set and remove values of a TOML text. Comments, order and spacing of everything else stay."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError


def set_values(text: str, values: Mapping[str, Any]) -> str:
    """Return `text` with other values at dotted keys. Missing tables are added; None removes a key or a table.

    Args:
        text: valid TOML.
        values: Python values, or tomlkit items to keep their spelling.

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
    """A value as TOML on one line."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key_text(name)} = {value_text(part)}" for name, part in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def _key_text(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else value_text(name)


def keep_line_ends(before: str, after: str) -> str:
    """Return `after` with the line ends of `before` where lines stayed the same. Text areas make all line ends the
    same.
    """
    if "\r" not in before and before.isascii():
        return after.replace("\r\n", "\n")
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    top, below = same_ends([_bare(line) for line in old], [_bare(line) for line in new])
    newline = "\r\n" if before.count("\r\n") * 2 > before.count("\n") else "\n"
    middle = [text + newline if has_end else text for text, has_end in map(_bare, new[top : len(new) - below])]
    return "".join((*old[:top], *middle, *old[len(old) - below :]))


def _bare(line: str) -> tuple[str, bool]:
    text = line.splitlines()[0]
    return text, text != line


def same_ends(before: Sequence[object], after: Sequence[object]) -> tuple[int, int]:
    """Count the lines that are the same at the top, and those that are the same at the bottom."""
    most = min(len(before), len(after))
    top = next((i for i in range(most) if before[i] != after[i]), most)
    below = next((i for i in range(most - top) if before[-1 - i] != after[-1 - i]), most - top)
    return top, below
