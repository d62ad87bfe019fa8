"""The settings in force: an option goes before the environment, that before the file, that before the default."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.settings import CONFIG, Settings, SnapshotSettings
from vramtui.models.named_files import path_named
from vramtui.presets import config_dir

# Each variable and the setting that it stands for; one that is empty says nothing.
VARIABLES = {
    "VRAMTUI_INTERVAL": "dashboard.interval",
    "VRAMTUI_THEME": "dashboard.theme",
    "VRAMTUI_MONITOR": "dashboard.monitor",
    "VRAMTUI_NO_SIGNALS": "dashboard.no_signals",
    "VRAMTUI_GROUP": "columns.group",
    "VRAMTUI_SNAPSHOT_FOLDER": "snapshot.folder",
    "VRAMTUI_RECORDING_FOLDER": "recording.folder",
}
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def settings_in_force(options: Mapping[str, Any] | None = None) -> Settings:
    """The settings in force."""
    path, settings = config_dir() / CONFIG, Settings()
    if path.exists():
        from vramtui.presets.settings import read_settings

        settings = read_settings(path)
    for variable, key in set_variables().items():
        settings = _with_variable(settings, variable, key)
    given = {name: value for name, value in (options or {}).items() if value is not None}
    return _with_values(settings, "dashboard", given) if given else settings


def set_variables() -> dict[str, str]:
    """The variables that say something here, and the settings that they stand for."""
    return {variable: key for variable, key in VARIABLES.items() if os.environ.get(variable)}


def _with_variable(settings: Settings, variable: str, key: str) -> Settings:
    from vramtui.presets.reader import finite_float
    from vramtui.presets.schema import find_faults

    table, _, name = key.partition(".")
    text = os.environ[variable]
    value: object = text
    if isinstance(getattr(getattr(settings, table), name), bool):
        value = True if text.lower() in YES else False if text.lower() in NO else text
    elif key == "dashboard.interval":
        try:
            value = finite_float(text)
        except ValueError:
            raise UserError(f"{variable}={printable(text)} is not a number of seconds") from None
    faults = find_faults({table: {name: value}}, Settings)
    if faults:
        raise UserError(f"{variable}={printable(text)}: {faults[0].sentence}")
    return _with_values(settings, table, {name: value})


def _with_values(settings: Settings, table: str, values: Mapping[str, Any]) -> Settings:
    from msgspec.structs import replace

    return replace(settings, **{table: replace(getattr(settings, table), **values)})


def folder_of(settings: SnapshotSettings) -> Path:
    """The chosen folder; where the program was started when none was."""
    return path_named(settings.folder) if settings.folder else Path.cwd()
