"""Recordings as files: one JSON object a line, so that a torn file loses one line and no more; and their lines, made of
one sample after another, wherever those go.

The first line is the header, `{"vramtui_recording": 1, "started_at": …, "interval": …, "versions": {…}}`; every other
line is one Sample in its JSON form (`vramtui.core.observation.readings`) or what changed since the one before
(`vramtui.records.recording.deltas`); a whole sample comes at least once a minute. After a sample come lines about what
the jobs' own probes told (`vramtui.records.recording.jobs`), what presets predicted for its processes
(`vramtui.records.recording.predictions`) and peaks that no sample shows (`vramtui.records.recording.peaks`), where
there is any of it.

The 1 of the header, and `schema` in a whole sample, is the format's only number. It goes up where an older reader would
be wrong about what it reads; new fields and new kinds of lines leave it as it is, and readers pass over them.

A file whose name ends in `.gz` is compressed, flushed after each sample; its gzip members may be several. The reader
goes by what is in the file, not by its name.
"""

import zlib
from collections.abc import Callable
from gzip import GzipFile
from pathlib import Path
from typing import IO

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.export.sanitize import clean
from vramtui.records.recording.deltas import DeltaLine, difference
from vramtui.records.recording.jobs import WrittenJobs
from vramtui.records.recording.peaks import WrittenPeaks
from vramtui.records.recording.predictions import WrittenPredictions
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


WHOLE_EVERY = 60.0  # seconds between samples that stand by themselves


class RecordingEncoder:
    """Makes the lines, each with its newline; what one sample brings belongs together."""

    def __init__(self) -> None:
        self._last: Sample | None = None
        self._next_whole = float("-inf")
        self._jobs = WrittenJobs()
        self._predictions = WrittenPredictions()
        self._peaks = WrittenPeaks()

    @staticmethod
    def header(header: RecordingHeader) -> bytes:
        """The first line."""
        return msgspec.json.encode(header) + b"\n"

    def lines(self, tick: RecordedTick) -> bytes:
        """The next sample: what changed since the last one where that will do."""
        sample = tick.sample
        predicted = self._predictions.lines(sample, tick.predictions)
        job_lines = self._jobs.lines(sample.taken_at, tick.jobs)
        lines = (self._sample_line(sample), *predicted, *self._peaks.lines(sample, tick.peaks), *job_lines)
        return b"".join(line + b"\n" for line in lines)

    def _sample_line(self, sample: Sample) -> bytes:
        last, self._last = self._last, sample
        delta = None
        if last is not None and last.taken_at <= sample.taken_at < self._next_whole:
            delta = difference(last, sample)
        if delta is None:
            self._next_whole = sample.taken_at + WHOLE_EVERY
        try:
            return encode_sample(sample) if delta is None else msgspec.json.encode(DeltaLine(delta))
        except UnicodeEncodeError:
            # A name that is no Unicode at all cannot stand in JSON.
            return msgspec.json.encode(clean(msgspec.to_builtins(sample if delta is None else DeltaLine(delta))))
