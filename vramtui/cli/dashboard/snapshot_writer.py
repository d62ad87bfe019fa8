"""Where the dashboard's snapshots go and in which formats; what is chosen there is kept in the settings."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.settings import SnapshotSettings


class SnapshotSaver:
    """Writes snapshots as the settings say, and takes other settings.

    Args:
        settings: what holds at first.
        config: the settings file, in which choices are kept.
    """

    def __init__(self, settings: SnapshotSettings, config: Path) -> None:
        self.settings = settings
        self._config = config

    def __call__(self, snapshot: Snapshot, svg: str) -> list[str]:
        """Write a snapshot and its picture; the paths of what was written.

        Raises:
            UserError: it cannot be written.
        """
        from vramtui.cli.common.renderer import save_drawn  # noqa: PLC0415 - as above
        from vramtui.cli.common.snapshot_settings import folder_of  # noqa: PLC0415 - as below
        from vramtui.cli.common.versions import versions  # noqa: PLC0415 - when the first snapshot is taken

        whole = msgspec.structs.replace(snapshot, versions=versions(snapshot.sample))
        return [str(path) for path in save_drawn(whole, folder_of(self.settings), self.settings.formats, svg)]

    def keep(self, values: Mapping[str, object]) -> None:
        """Set values in the settings file by their dotted keys; None takes a key away.

        Raises:
            UserError: the file cannot be read or written.
        """
        from vramtui.presets.settings import write_settings  # noqa: PLC0415 - only where something is chosen

        write_settings(self._config, values)

    def choose(self, settings: SnapshotSettings) -> None:
        """Save like this from now on, also in later starts.

        Raises:
            UserError: the settings cannot be kept; they hold for this start all the same.
        """
        self.settings = settings
        self.keep({"snapshot.folder": settings.folder, "snapshot.formats": settings.formats})
