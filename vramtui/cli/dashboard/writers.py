"""Where the dashboard's recordings go, and the files that `s` writes."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.settings import SnapshotSettings

if TYPE_CHECKING:
    from vramtui.records.recording.writer import RecordingWriter

TRIES = 100  # names that may be taken already


class FileRecorder:
    """Begins recordings `vramtui-HOST-YYYYmmdd-HHMMSS.jsonl.gz` in a folder, which is made if it is not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, first: Sample, interval: float) -> "RecordingWriter":
        """A new recording.

        Raises:
            UserError: there can be none in that folder.
        """
        from vramtui.cli.common.versions import versions
        from vramtui.records.recording.writer import RecordingHeader, RecordingWriter

        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = os_reason(error)
            raise UserError(
                f"the folder for recordings, {printable(str(self._folder))}, cannot be used: {reason}"
            ) from None
        header = RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))
        return RecordingWriter(self._free(first), header)

    def _free(self, first: Sample) -> Path:
        host = re.sub(r"[^A-Za-z0-9._-]+", "-", first.host.name).strip(".-")[:64] or "host"
        stem = f"vramtui-{host}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(first.taken_at))}"
        names = (stem, *(f"{stem}-{number}" for number in range(2, TRIES)))
        free = (path for name in names if not (path := self._folder / f"{name}.jsonl.gz").exists())
        return next(free, self._folder / f"{stem}.jsonl.gz")


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
        from vramtui.cli.common.renderer import save_drawn
        from vramtui.cli.common.settings import folder_of
        from vramtui.cli.common.versions import versions

        whole = msgspec.structs.replace(snapshot, versions=versions(snapshot.sample))
        return [str(path) for path in save_drawn(whole, folder_of(self.settings), self.settings.formats, svg)]

    def keep(self, values: Mapping[str, object]) -> None:
        """Set values in the settings file by their dotted keys; None takes a key away.

        Raises:
            UserError: the file cannot be read or written.
        """
        from vramtui.presets.settings import write_settings

        write_settings(self._config, values)

    def choose(self, settings: SnapshotSettings) -> None:
        """Save like this from now on, also in later starts.

        Raises:
            UserError: the settings cannot be kept; they hold for this start all the same.
        """
        self.settings = settings
        self.keep({"snapshot.folder": settings.folder, "snapshot.formats": settings.formats})
