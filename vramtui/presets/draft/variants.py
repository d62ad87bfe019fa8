"""A variant as a preset of the person's own: the file it comes from with the values that differ, comments kept."""

import re
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.presets.draft.draft import Draft, draft_copy
from vramtui.presets.reader import parse_preset
from vramtui.presets.toml.edits import set_values
from vramtui.presets.whole_files import NotDurableError

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._]+")
_SIZE = re.compile(r"(\w+) (\d\S*)")


def proposed_name(preset_file: PresetFile, how: str) -> str:
    """A file's name for a variant: the preset's own and what was varied."""
    parts = (_SIZE.sub(r"\1\2", part) if _SIZE.fullmatch(part) else part for part in how.replace(",", "").split(" · "))
    return _NOT_IN_NAMES.sub("-", "-".join((preset_file.key, *parts))).strip("-._")[:100]


def save_variant(preset_file: PresetFile, workload: Workload, name: str, how: str) -> PresetFile:
    """Write `workload` under `name` into the person's own folder, as the file of `preset_file` with other values.

    What was measured of the old one is left out, and so is its `[match]`: the old one still is what runs under that
    command.

    Raises:
        UserError: the name is taken, the old file cannot be read, or the new one cannot be written.
    """
    values = {
        "name": f"{preset_file.preset.name} · {how}",
        "measured": None,
        "match": None,
        **differences(preset_file.preset.workload, workload),
    }
    draft = draft_copy(preset_file, name)
    there = toml.loads(draft.text)
    values = {key: value for key, value in values.items() if value is not None or _has(there, key)}
    text = set_values(draft.text, values)
    saved = Draft(text, name)
    if parse_preset(text, Path(preset_file.path)).workload != workload:
        raise UserError(
            f"{printable(preset_file.key)} cannot be saved with these values: its file writes them in another way"
        )
    try:
        path = saved.save()
    except NotDurableError:
        path = saved.path or Path(name)
    return PresetFile(key=path.stem, path=str(path), bundled=False, preset=parse_preset(text, path))


def _has(tables: Any, key: str) -> bool:  # noqa: ANN401 - TOML tables hold anything
    """Whether there is anything to take away at `key`."""
    *heads, last = key.split(".")
    for part in heads:
        tables = tables.get(part, {})
    return last in tables


def differences(before: object, after: msgspec.Struct) -> dict[str, Any]:
    """The dotted keys whose values differ, with those of `after`; None takes one away."""
    changed: dict[str, Any] = {}
    for field in msgspec.structs.fields(after):
        old, new = getattr(before, field.name, None), getattr(after, field.name)
        if old == new and type(old) is type(new):
            continue
        name = field.encode_name
        if isinstance(new, msgspec.Struct):
            alike = isinstance(old, msgspec.Struct) and type(old) is type(new)
            inner = differences(old, new) if alike else _changed_values(new)
            changed |= {f"{name}.{key}": value for key, value in inner.items()}
        else:
            changed[name] = msgspec.to_builtins(new)
    return changed


def _changed_values(table: msgspec.Struct) -> dict[str, Any]:
    """Every key of a new table that differs from its default."""
    return {
        field.encode_name: msgspec.to_builtins(getattr(table, field.name))
        for field in msgspec.structs.fields(table)
        if field.required or getattr(table, field.name) != field.default
    }
