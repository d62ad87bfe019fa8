"""A new preset in the user's own folder, from a model's file or from another preset."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import preset_named
from vramtui.presets.overrides import apply_overrides
from vramtui.presets.reader import display_path, is_written, open_text
from vramtui.presets.whole_files import write_preset_text

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def create_preset(
    library: PresetLibrary, name: str, source: str, *, settings: Sequence[str] = (), hub: bool = False
) -> Path:
    """Write a preset from a model or another preset. Without changes, the text is copied with its comments.

    Args:
        library: the known presets; the new one is written into its user's folder.
        name: the new preset's name.
        source: a model's path or name, or the name or path of a preset.
        settings: changes as `apply_overrides` takes them.
        hub: whether the network may be used to find the model.

    Raises:
        UserError: a file cannot have the name, it is taken, the source cannot be read, or a setting is wrong.
    """
    checked_name(name)
    path = library.user_folder / f"{name}.toml"
    if path.exists() or path.is_symlink():
        raise UserError(f"{display_path(path)} exists already; choose another name")
    if name in set(library.keys()):
        raise UserError(f"a preset is called {name!r} already; choose another name")
    preset_file = preset_named(source, library, hub=hub)
    write_preset_text(
        path, as_toml(apply_overrides(preset_file.preset, settings)) if settings else text_of(preset_file)
    )
    return path


def checked_name(name: str) -> str:
    """Return `name` if a preset's file may have it.

    Raises:
        UserError: a file cannot have it.
    """
    if not NAME.fullmatch(name):
        raise UserError(f"{printable(repr(name[:60]))} is not a valid preset name: use letters, digits and .-_")
    return name


def text_of(preset_file: PresetFile) -> str:
    """Return a preset's text as it is in its file, or would be for a preset made from a model.

    Raises:
        UserError: the file cannot be read.
    """
    return open_text(Path(preset_file.path)).text if is_written(preset_file) else as_toml(preset_file.preset)


def as_toml(preset: msgspec.Struct) -> str:
    """Return the TOML text of a preset, without default values."""
    import tomlkit  # noqa: PLC0415 - 9 ms that only writing pays

    return tomlkit.dumps(_explicit_values(preset))


def _explicit_values(part: msgspec.Struct) -> dict[str, Any]:
    """The keys of a Struct that differ from their defaults, and its tag."""
    config = part.__struct_config__
    values: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field and config.tag is not None else {}
    tables = {}
    for field in msgspec.structs.fields(part):
        value = getattr(part, field.name)
        if value is None or (not field.required and value == field.default):
            continue
        if isinstance(value, msgspec.Struct):
            tables[field.encode_name] = _explicit_values(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            values[field.encode_name] = [_explicit_values(part) for part in value]
        else:
            plain = msgspec.to_builtins(value)
            (tables if isinstance(plain, Mapping) else values)[field.encode_name] = plain
    return values | tables
