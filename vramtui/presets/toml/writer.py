"""A changed preset, back to its file: comments kept, never half written, never onto a bundled one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramtui.core.base.errors import UserError
from vramtui.presets import bundled_folder, config_dir
from vramtui.presets.reader import BYTE_ORDER_MARK, display_path, parse_preset
from vramtui.presets.toml.whole_files import write_whole


def set_values(text: str, values: Mapping[str, Any]) -> str:
    """`text` with the values at dotted keys replaced, and everything else as it was, comments and spacing included.

    A table that is not there yet is added; None takes a key away. `text` has to be valid TOML.

    Raises:
        UserError: a key goes through something that is no table.
    """
    import tomlkit  # noqa: PLC0415 - 9 ms that only writing pays
    from tomlkit.items import AbstractTable  # noqa: PLC0415 - comes with it

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
    """Put `text` where `path` is, whole or not at all; a link stays one, and what it leads to is written.

    Raises:
        NotDurableError: the text is in the file, but may not survive a power cut.
        UserError: the text is no preset, the file came with the program, or it cannot be written; the sentence says
            what stands in the file.
    """
    parse_preset(text.removeprefix(BYTE_ORDER_MARK), path)
    try:
        whole = path.resolve()
    except (OSError, RuntimeError):
        raise UserError(f"{display_path(path)} cannot be written: it is a link that leads to itself") from None
    if whole.is_relative_to(bundled_folder().resolve()):
        raise UserError(
            f"{display_path(path)} came with the program; save it as {config_dir() / 'presets' / path.name}"
        )
    write_whole(whole, text.encode(), display_path(path))
