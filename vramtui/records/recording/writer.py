"""Recordings as files: one JSON object a line (`vramtui.records.recording.encoder`), so that a torn file loses one line
and no more.

A file whose name ends in `.gz` is compressed, flushed after each sample; its gzip members may be several. The reader
goes by what is in the file, not by its name.
"""

import zlib
from collections.abc import Callable
from gzip import GzipFile
from pathlib import Path
from typing import IO

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.encoder import RecordingEncoder
from vramtui.records.recording.reader import RecordingReader
from vramtui.records.recording.recording import Recording, RecordingHeader

__all__ = ["Recording", "RecordingHeader", "RecordingWriter", "read_recording"]


class RecordingWriter:
    """Writes a recording to a new file; every line is on its way to the disk when `write` returns.

    Args:
        path: where to; compressed when the name ends in `.gz`.
        header: the first line.

    Raises:
        UserError: there is such a file already, or it cannot be written (also from `write` and `close`).
    """

    def __init__(self, path: Path, header: RecordingHeader) -> None:
        self.path = path
        try:
            self._file: IO[bytes] = path.open("xb")
        except FileExistsError:
            raise UserError(f"{printable(str(path))} exists already; a recording never overwrites") from None
        except OSError as error:
            raise self._failure(error) from None
        self._zipped = GzipFile(fileobj=self._file, mode="wb", filename="") if path.suffix == ".gz" else None
        self._encoder = RecordingEncoder()
        self._write(self._encoder.header(header))

    @property
    def where(self) -> str:
        """The file, to be read by a person."""
        return printable(str(self.path))

    def write(self, tick: RecordedTick) -> None:
        """Add one moment."""
        self._write(self._encoder.lines(tick))

    def close(self) -> None:
        """End the file."""
        try:
            if self._zipped is not None:
                self._zipped.close()
            self._file.close()
        except OSError as error:
            raise self._failure(error) from None

    def _write(self, text: bytes) -> None:
        try:
            if self._zipped is not None:
                self._zipped.write(text)
                self._zipped.flush(zlib.Z_SYNC_FLUSH)
            else:
                self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> UserError:
        reason = error.strerror or str(error)
        return UserError(f"the recording {self.where} cannot be written: {printable(reason).lower()}")


def read_recording(path: Path, progress: Callable[[float], None] | None = None) -> Recording:
    """The recording in `path`, plain or gzip. A last line that was cut off is left out, and a warning says so.

    Args:
        path: the file.
        progress: is told now and then how much of the file is read, from 0 to 1.

    Raises:
        UserError: it cannot be read, holds no sample, or a line (which the sentence names) is not a Sample.
    """
    reading = RecordingReader(path)
    for fraction in reading.go():
        if progress is not None:
            progress(fraction)
    return reading.recording()
