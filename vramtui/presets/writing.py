"""A changed preset, back to its file: comments kept, never half written, never onto a bundled one."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vramtui.core.errors import UserError
from vramtui.presets.library import bundled_folder, config_dir
from vramtui.presets.reading import parse_preset, shown


def set_values(text: str, values: Mapping[str, Any]) -> str:
    """`text` with the values at dotted keys replaced, and everything else as it was, comments and spacing included.

    A table that is not there yet is added; None takes a key away. `text` has to be valid TOML.

    Raises:
        UserError: a key goes through something that is no table.
    """
    import tomlkit  # noqa: PLC0415 - 9 ms that only writing pays
    from tomlkit.items import AbstractTable  # noqa: PLC0415 - as above

    document = tomlkit.parse(text)
    for key, value in values.items():
        *heads, last = key.split(".")
        table: Any = document
        for part in heads:
            if part not in table:
                table[part] = tomlkit.table()
            table = table[part]
            if not isinstance(table, AbstractTable):
                raise UserError(f"{key} cannot be set: {part} is no table")
        if value is not None:
            table[last] = list(value) if isinstance(value, tuple) else value
        elif last in table:
            del table[last]
    return tomlkit.dumps(document)


def write_preset_text(path: Path, text: str) -> None:
    """Put `text` where `path` is, whole or not at all.

    Raises:
        UserError: the text is no preset, the file came with the program, or it cannot be written.
    """
    parse_preset(text, path)
    whole = path.resolve()
    if whole.is_relative_to(bundled_folder().resolve()):
        raise UserError(f"{shown(path)} came with the program; save it as {config_dir() / 'presets' / path.name}")
    try:
        whole.parent.mkdir(parents=True, exist_ok=True)
        _replace(whole, text)
    except OSError as error:
        raise UserError(f"{shown(path)} cannot be written: {error.strerror}") from None


def _replace(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).chmod(mode)
        Path(beside).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(beside).unlink()
        raise
