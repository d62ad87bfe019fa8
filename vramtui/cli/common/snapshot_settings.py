"""Where snapshots and reports go and in which formats, for the commands: as it was chosen once."""

from pathlib import Path

from vramtui.cli.common.settings import settings_in_force
from vramtui.core.schema.settings import SnapshotSettings
from vramtui.models.named_files import path_named


def snapshot_settings() -> SnapshotSettings:
    """The settings file's `[snapshot]`.

    Raises:
        UserError: the file is wrong.
    """
    return settings_in_force().snapshot


def folder_of(settings: SnapshotSettings) -> Path:
    """The chosen folder; where the program was started when none was."""
    return path_named(settings.folder) if settings.folder else Path.cwd()
