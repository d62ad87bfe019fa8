"""Recordings: one JSON object a line, so that a torn file loses one line only.

The first line is the header, `{"vramtui_recording": 1, "started_at": …, "interval": …, "versions": {…}}`. Every sample
is one line: the whole Sample as JSON (`vramtui.core.observation.readings`) at least once a minute, and otherwise
`{"changes": {…}}` since the sample before (`changes.py`). Lines about predictions and peaks of its processes
(`processes.py`) and reports of probes (`jobs.py`) follow it if there are any.

The 1 of the header, and `schema` in a whole sample, is the format's only number. It goes up if an older reader would
be wrong about what it reads; readers ignore new fields and new kinds of lines.

A file whose name ends in `.gz` is compressed and flushed after each sample; it may have several gzip members. The
reader looks at the file's content, not its name.
"""

import sys
import zlib
from gzip import GzipFile
from pathlib import Path
from typing import IO

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.export.plain import clean
from vramtui.records.recording.decoder import RecordingHeader
from vramtui.records.recording.jobs import WrittenJobs
from vramtui.records.recording.samples import ChangesLine, WrittenProcesses, changes_between

WHOLE_EVERY = 60.0  # seconds between whole samples


class RecordingEncoder:
    """Makes the lines, each with its newline."""

    def __init__(self) -> None:
        self._last: Sample | None = None
        self._next_whole = float("-inf")
        self._jobs = WrittenJobs()
        self._processes = WrittenProcesses()

    @staticmethod
    def header(header: RecordingHeader) -> bytes:
        return msgspec.json.encode(header) + b"\n"

    def lines(self, tick: RecordedTick) -> bytes:
        """The next sample and the lines that follow it."""
        sample, last = tick.sample.in_rows(), self._last
        self._last = sample
        changes = None
        if (
            last is not None
            and last.taken_at <= sample.taken_at < self._next_whole
            and last.source == sample.source
            and [gpu.uuid for gpu in last.gpus] == [gpu.uuid for gpu in sample.gpus]
        ):
            changes = ChangesLine({"taken_at": sample.taken_at, **changes_between(last, sample)})
        else:
            self._next_whole = sample.taken_at + WHOLE_EVERY
        try:
            line = encode_sample(sample) if changes is None else msgspec.json.encode(changes)
        except UnicodeEncodeError:  # JSON cannot hold a name that is not Unicode
            line = msgspec.json.encode(clean(msgspec.to_builtins(changes or sample)))
        lines = (line, *self._processes.lines(tick), *self._jobs.lines(sample.taken_at, tick.jobs))
        return b"".join(line + b"\n" for line in lines)


class RecordingWriter:
    """Writes a recording to a new file, compressed if its name ends in `.gz`, or without one to standard output, which
    stays open; every line is on its way when `write` returns.

    Raises:
        UserError: the file exists, or cannot be written (also from `write` and `close`).
    """

    def __init__(self, path: Path | None, header: RecordingHeader) -> None:
        self.path = path
        try:
            self._file: IO[bytes] = sys.stdout.buffer if path is None else path.open("xb")
        except FileExistsError:
            raise UserError(f"{printable(str(path))} exists already; a recording never overwrites") from None
        except OSError as error:
            raise self._failure(error) from None
        is_zipped = path is not None and path.suffix == ".gz"
        self._zipped = GzipFile(fileobj=self._file, mode="wb", filename="") if is_zipped else None
        self._encoder = RecordingEncoder()
        self._write(self._encoder.header(header))

    @property
    def where(self) -> str:
        return printable(str(self.path))

    def write(self, tick: RecordedTick) -> None:
        self._write(self._encoder.lines(tick))

    def close(self) -> None:
        if self.path is None:
            return
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
            if self.path is None:  # whoever reads has gone
                raise
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> UserError:
        reason = error.strerror or str(error)
        return UserError(f"the recording {self.where} cannot be written: {printable(reason).lower()}")
