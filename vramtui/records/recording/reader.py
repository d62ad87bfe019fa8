"""A recording's file, read line by line; it may be compressed, and cut off while it was written."""

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from vramtui.core.base.compatibility import NewerFormatError
from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.file_limits import RECORDING
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample
from vramtui.records.recording.decoder import RecordingDecoder, RecordingHeader, WrongTimeError
from vramtui.records.recording.samples import Samples

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16
TOLD_EVERY = 100  # lines
AT_ONCE = 0.7  # seconds of reading before anything is shown
TURN = 0.02  # seconds of reading at a time, so that the screen has its turn
BREATH = 0.002


class FileLine(NamedTuple):
    """A line without its newline, counted from 1. `whole` is False if the file ends before the line does."""

    number: int
    text: bytes
    whole: bool


class LineTooLongError(Exception):
    """A line of more than RECORDING.size bytes. Its only argument is the line's number."""


def read_lines(file: IO[bytes]) -> Iterator[FileLine]:
    """Every line of `file`, which may be gzip of one or more members; only the last may be cut off.

    Raises:
        LineTooLongError: a line does not end.
        zlib.error: compressed data is damaged, not only cut off.
    """
    rest = bytearray()
    number = 0
    for chunk in _chunks(file):
        searched = len(rest)
        rest += chunk
        begin = 0
        end = rest.find(b"\n", searched)
        while end >= 0:
            number += 1
            yield FileLine(number, bytes(rest[begin:end]), whole=True)
            begin = end + 1
            end = rest.find(b"\n", begin)
        del rest[:begin]
        if len(rest) > RECORDING.size:
            raise LineTooLongError(number + 1)
    if rest:
        yield FileLine(number + 1, bytes(rest), whole=False)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    data = file.read(len(_GZIP_MAGIC))
    if data != _GZIP_MAGIC:
        yield data
        while chunk := file.read(_CHUNK):
            yield chunk
        return
    member = zlib.decompressobj(wbits=31)
    while data or (data := file.read(_CHUNK)):
        if member.eof:
            member = zlib.decompressobj(wbits=31)
        # Bounded, so that a small file cannot fill the memory before a line's length is checked.
        yield member.decompress(data, _CHUNK)
        data = member.unused_data if member.eof else member.unconsumed_tail
    yield member.flush()


class Recording:
    """A recording; it can be used while `read` goes on reading it.

    `samples` are in the order of their times; `jobs_at`, `predictions_at` and `peaks_at` take a time in seconds since
    the epoch. `reading` is how much of the file is read, from 0 to 1; None if all of it is.
    """

    def __init__(self, path: Path) -> None:
        self._read = Samples()
        self.samples: Sequence[Sample] = self._read
        self.times: Sequence[float] = self._read.times
        self.fraction: float | None = None
        self._decoder = RecordingDecoder()
        self.jobs_at = self._decoder.jobs.at
        processes = self._decoder.processes
        self.predictions_at, self.every_prediction = processes.predictions_at, processes.every_prediction
        self.peaks_at = processes.peaks_at
        self._path = path
        self._name = printable(str(path))
        self._damaged, self._left_out = "", 0
        self._rest: Iterator[float] = iter(())
        self._thread: threading.Thread | None = None

    @property
    def header(self) -> RecordingHeader:
        return self._decoder.header or RecordingHeader()

    @property
    def warnings(self) -> Sequence[str]:
        """Sentences about the file for the user, as far as it is read."""
        return tuple(self._decoder.warnings)

    def read(self) -> Iterator[float]:
        """Read; yields how much of the file is read, from 0 to 1. A damaged line, and the changes that follow it, are
        left out with a warning.

        Raises:
            UserError: as `read_recording`.
        """
        name, last = self._name, 0
        warnings = self._decoder.warnings
        try:
            with self._path.open("rb") as file:
                size = max(1, self._path.stat().st_size)
                for line in read_lines(file):
                    self._take(line)
                    last = line.number
                    if not last % TOLD_EVERY:
                        yield min(1.0, file.tell() / size)
        except OSError as error:
            raise UserError(f"{name} cannot be read: {os_reason(error)}") from None
        except LineTooLongError as error:
            raise UserError(f"{name}, line {error.args[0]}: longer than any sample; is this a recording?") from None
        except zlib.error:
            raise UserError(f"{name}: the compressed data is damaged; {last} lines of it can be read") from None
        if not self.samples:
            raise UserError(f"{name} holds no sample")
        if self._left_out:
            with_it = f" with {self._left_out - 1:,} after it" if self._left_out > 1 else ""
            warnings.insert(0, f"{self._damaged}; it is left out{with_it}")
        if self._read.sort():
            warnings.append("the clock was set back while it was recorded; samples are in order of their times")

    def _take(self, line: FileLine) -> None:
        try:
            sample = self._decoder.take(line.text)
        except (NewerFormatError, WrongTimeError, msgspec.DecodeError, UnicodeDecodeError) as error:
            is_final = isinstance(error, UserError) or (line.whole and not self.samples)
            if is_final:
                raise UserError(f"{self._name}, line {line.number}: {printable(str(error))}") from None
            if line.whole:
                self._damaged = self._damaged or f"line {line.number} is damaged: {printable(str(error))}"
                self._left_out += 1
                self._decoder.pass_over(line.text)
            else:
                self._decoder.warnings.append(f"the recording was cut off in line {line.number}, which is left out")
        else:
            if sample is not None:
                self._read.add(line.text, sample)

    def read_later(self, rest: Iterator[float], fraction: float) -> None:
        """Go on reading when somebody asks for `reading`."""
        self._rest, self.fraction = rest, fraction

    @property
    def reading(self) -> float | None:
        if self._thread is None and self.fraction is not None:

            def go_on() -> None:
                until = time.monotonic() + TURN
                try:
                    for fraction in self._rest:
                        self.fraction = fraction
                        if time.monotonic() > until:
                            time.sleep(BREATH)
                            until = time.monotonic() + TURN
                except UserError as error:
                    self._decoder.warnings.append(f"{error}; what was read before that is shown")
                finally:
                    self.fraction = None

            self._thread = threading.Thread(target=go_on, name="read recording", daemon=True)
            self._thread.start()
        return self.fraction

    def wait(self) -> None:
        """Wait until all of it is read."""
        while self.reading is not None and self._thread is not None:
            self._thread.join()


def read_recording(path: Path, progress: Callable[[float], None] | None = None) -> Recording:
    """The recording in `path`, plain or gzip. A last line that was cut off is left out, and a warning says so.
    `progress` is called with how much of the file is read, from 0 to 1.

    Raises:
        UserError: it cannot be read, holds no sample, or a line (which the sentence names) is not a sample.
    """
    recording = Recording(path)
    for fraction in recording.read():
        if progress is not None:
            progress(fraction)
    recording.samples = recording._read.in_hand()  # noqa: SLF001 - of this module
    return recording


def open_recording(path: Path, at_once: float = AT_ONCE) -> Recording:
    """The recording in `path`: all of it, or as much as can be read in `at_once` seconds and the rest later.

    Raises:
        UserError: as `read_recording`, for what is read at once.
    """
    recording = Recording(path)
    rest, until = recording.read(), time.monotonic() + at_once
    for fraction in rest:
        if time.monotonic() > until and recording.samples:
            recording.read_later(rest, fraction)
            return recording
    recording.samples = recording._read.in_hand()  # noqa: SLF001 - of this module
    return recording
