"""Reading a recording, line by line."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vramtui.core.base.compatibility import NewerFormat
from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.records.recording.decoder import RecordingDecoder, WrongTime
from vramtui.records.recording.lines import FileLine, LineTooLong, read_lines
from vramtui.records.recording.recording import Recording, RecordingHeader
from vramtui.records.recording.samples import Samples

TOLD_EVERY = 100  # lines


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

    def go(self) -> Iterator[float]:
        """Read; now and then how much of the file is read, from 0 to 1.

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
        except LineTooLong as error:
            raise UserError(f"{name}, line {error.args[0]}: longer than any sample; is this a recording?") from None
        except zlib.error:
            raise UserError(f"{name}: the compressed data is damaged; {last} lines of it can be read") from None
        if not self.samples:
            raise UserError(f"{name} holds no sample")
        if self.samples.sort():
            self.warnings.append("the clock was set back while it was recorded; samples are in order of their times")

    def _take(self, line: FileLine) -> None:
        try:
            sample = self._decoder.take(line.text)
        except (NewerFormat, WrongTime) as error:
            raise self._bad(line, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if line.whole:
                raise self._bad(line, str(error)) from None
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
