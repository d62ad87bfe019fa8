"""Where the dashboard's recordings go."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample

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
        from vramtui.cli.common.versions import versions  # noqa: PLC0415 - when the first recording begins
        from vramtui.records.recording.writer import RecordingHeader, RecordingWriter  # noqa: PLC0415 - as above

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
