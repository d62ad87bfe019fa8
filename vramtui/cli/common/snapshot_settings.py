"""Where snapshots and reports go and in which formats, for the commands: as it was chosen once."""

from pathlib import Path

from vramtui.cli.common.paths import config_dir
from vramtui.core.schema.settings import CONFIG, SnapshotSettings


def snapshot_settings() -> SnapshotSettings:
    """The settings file's `[snapshot]`.

    Raises:
        UserError: the file is wrong.
    """
    path = config_dir() / CONFIG
    if not path.exists():
        return SnapshotSettings()
    from vramtui.presets.settings import read_settings  # noqa: PLC0415 - only where there is something to read

    return read_settings(path).snapshot


def folder_of(settings: SnapshotSettings) -> Path:
    """The chosen folder; where the program was started when none was."""
    return Path(settings.folder).expanduser() if settings.folder else Path.cwd()
