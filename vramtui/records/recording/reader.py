"""Reading a recording line by line; the file may be compressed, and cut off in the middle of being written."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from vramtui.core.base.compatibility import NewerFormatError
from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.file_limits import RECORDING
from vramtui.core.base.text import printable
from vramtui.records.recording.decoder import RecordingDecoder, WrongTimeError
from vramtui.records.recording.recording import Recording, RecordingHeader
from vramtui.records.recording.samples import Samples

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16
TOLD_EVERY = 100  # lines


class FileLine(NamedTuple):
    """A line without its newline, counted from 1. `whole` is False when the file ends before the line does."""

    number: int
    text: bytes
    whole: bool


class LineTooLongError(Exception):
    """A line of more than RECORDING.size bytes. Its only argument is the line's number."""


def read_lines(file: IO[bytes]) -> Iterator[FileLine]:
    """Every line of `file`, which may be gzip of one or more members; only the last can be one that is not whole.

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
    first = file.read(len(_GZIP_MAGIC))
    if first == _GZIP_MAGIC:
        yield from _unzipped(file, first)
        return
    yield first
    while chunk := file.read(_CHUNK):
        yield chunk


def _unzipped(file: IO[bytes], data: bytes) -> Iterator[bytes]:
    """What is in the gzip members, up to wherever the last one was cut off."""
    member = zlib.decompressobj(wbits=31)
    while data or (data := file.read(_CHUNK)):
        if member.eof:
            member = zlib.decompressobj(wbits=31)
        # Bounded, so that a small file cannot fill the memory before a line's length is looked at.
        yield member.decompress(data, _CHUNK)
        data = member.unused_data if member.eof else member.unconsumed_tail
    yield member.flush()


class RecordingReader:
    """A recording while it is read: `go` reads it, and what is read so far can be looked at meanwhile."""

    def __init__(self, path: Path) -> None:
        self.samples = Samples()
        self._decoder = RecordingDecoder()
        self.jobs = self._decoder.jobs
        self.predictions = self._decoder.predictions
        self.peaks = self._decoder.peaks
        self.warnings = self._decoder.warnings
        self._path = path
        self._name = printable(str(path))
        self._damaged, self._left_out = "", 0

    def go(self) -> Iterator[float]:
        """Read; now and then how much of the file is read, from 0 to 1. A damaged line hides itself, and the samples
        that only say what changed since; a warning tells.

        Raises:
            UserError: as `read_recording` does.
        """
        name, last = self._name, 0
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
            self.warnings.insert(0, f"{self._damaged}; it is left out{with_it}")
        if self.samples.sort():
            self.warnings.append("the clock was set back while it was recorded; samples are in order of their times")

    def _take(self, line: FileLine) -> None:
        try:
            sample = self._decoder.take(line.text)
        except (NewerFormatError, WrongTimeError) as error:
            raise self._bad(line, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if line.whole and not self.samples:
                raise self._bad(line, str(error)) from None
            if line.whole:
                self._damaged = self._damaged or f"line {line.number} is damaged: {printable(str(error))}"
                self._left_out += 1
                self._decoder.pass_over(line.text)
            else:
                self.warnings.append(f"the recording was cut off in line {line.number}, which is left out")
        else:
            if sample is not None:
                self.samples.add(line.text, sample)

    def recording(self) -> Recording:
        """All of it, after `go` has ended."""
        return Recording(
            header=self._decoder.header or RecordingHeader(),
            samples=self.samples.in_hand(),
            jobs=self.jobs,
            predictions=self.predictions,
            peaks=self.peaks,
            warnings=tuple(self.warnings),
        )

    def _bad(self, line: FileLine, why: str) -> UserError:
        return UserError(f"{self._name}, line {line.number}: {printable(why)}")
