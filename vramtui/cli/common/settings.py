"""The settings in force (option, environment, file, default), folders by the XDG base directories, and versions."""

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramtui import __version__
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.settings import CONFIG, Settings, SnapshotSettings
from vramtui.models.named_files import path_named
from vramtui.presets import config_dir, xdg_folder

if TYPE_CHECKING:
    from vramtui.core.runs.run import StoredRun
    from vramtui.records.run_history import RunHistory


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
    path, settings = config_dir() / CONFIG, Settings()
    if path.exists():
        from vramtui.presets.settings import read_settings

        settings = read_settings(path)
    for variable, key in set_variables().items():
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
        if faults := find_faults({table: {name: value}}, Settings):
            raise UserError(f"{variable}={printable(text)}: {faults[0].sentence}")
        settings = _with_values(settings, table, {name: value})
    given = {name: value for name, value in (options or {}).items() if value is not None}
    return _with_values(settings, "dashboard", given) if given else settings


def set_variables() -> dict[str, str]:
    """The variables that say something here, and the settings that they stand for."""
    return {variable: key for variable, key in VARIABLES.items() if os.environ.get(variable)}


def _with_values(settings: Settings, table: str, values: Mapping[str, Any]) -> Settings:
    from msgspec.structs import replace

    return replace(settings, **{table: replace(getattr(settings, table), **values)})


def folder_of(settings: SnapshotSettings) -> Path:
    """The chosen folder; where the program was started when none was."""
    return path_named(settings.folder) if settings.folder else Path.cwd()


def _folder(variable: str, default: str) -> Path:
    """A folder for files that the program writes: `$VRAMTUI_DATA_DIR` for all of them, or by the XDG variable."""
    chosen = os.environ.get("VRAMTUI_DATA_DIR")
    return Path(chosen) if chosen else xdg_folder(variable, default)


data_dir = partial(_folder, "XDG_DATA_HOME", "~/.local/share")  # of recordings
state_dir = partial(_folder, "XDG_STATE_HOME", "~/.local/state")  # of the history of runs
cache_dir = partial(_folder, "XDG_CACHE_HOME", "~/.cache")  # of files that can be made again


def run_history() -> "RunHistory":
    from vramtui.records.run_history import FILE, RunHistory

    return RunHistory(state_dir() / FILE)


def still_running(runs: "Iterable[StoredRun]") -> "tuple[StoredRun, ...]":
    """The runs, those of this host whose process is gone no longer `running`."""
    from vramtui.core.runs.run import with_gone
    from vramtui.sources.host.processes import process_is_gone

    return with_gone(runs, os.uname().nodename, process_is_gone)


def welcome_marker() -> Path:
    """The file that remembers that the dashboard has been opened."""
    return state_dir() / "welcomed"


def versions(sample: Sample) -> dict[str, str]:
    """Names and versions of what took part in reading `sample`; what is not there is left out."""
    from importlib.metadata import PackageNotFoundError, version

    versions_by_name = {"vramtui": __version__, "python": sys.version.split()[0]}
    for package in ("nvidia-ml-py", "torch", "transformers"):
        with suppress(PackageNotFoundError):
            versions_by_name[package] = version(package)
    if sample.host.driver_version:
        versions_by_name["driver"] = sample.host.driver_version
    if sample.host.cuda_version:
        versions_by_name["cuda"] = sample.host.cuda_version
    return versions_by_name
