"""Reading a recording, line by line."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import SCHEMA
from vramtui.records.recording.jobs import JobLine, ReadJobs
from vramtui.records.recording.lines import FileLine, LineTooLong, read_lines
from vramtui.records.recording.peaks import PeaksLine, ReadPeaks
from vramtui.records.recording.predictions import MatchedLine, PredictionLine, ReadPredictions
from vramtui.records.recording.recording import Recording, RecordingHeader
from vramtui.records.recording.samples import Samples, sample_in

LATEST = 253_402_300_799.0  # the last second of the year 9999
TOLD_EVERY = 100  # lines


class RecordingReader:
    """A recording while it is read: `go` reads it, and what is read so far can be looked at meanwhile."""

    def __init__(self, path: Path) -> None:
        self.samples = Samples()
        self.jobs = ReadJobs()
        self.predictions = ReadPredictions()
        self.peaks = ReadPeaks()
        self.warnings: list[str] = []
        self._path = path
        self._name = printable(str(path))
        self._header: RecordingHeader | None = None

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
            raise UserError(f"{name} cannot be read: {printable(error.strerror or str(error)).lower()}") from None
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
            self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if line.whole:
                raise self._bad(line, str(error)) from None
            self.warnings.append(f"the recording was cut off in line {line.number}, which is left out")

    def recording(self) -> Recording:
        """All of it, after `go` has ended."""
        return Recording(
            header=self._header or RecordingHeader(),
            samples=self.samples.in_hand(),
            jobs=self.jobs,
            predictions=self.predictions,
            peaks=self.peaks,
            warnings=tuple(self.warnings),
        )

    def _decode(self, line: FileLine) -> None:
        if self._header is None and not self.samples:
            self._header = self._read_header(line)
            if self._header is not None:
                return
        if self._beside(line.text):
            return
        sample = sample_in(line.text, self.samples.last)
        if sample.schema != SCHEMA:
            raise self._bad(line, f"made by another version (schema {sample.schema}, this one reads {SCHEMA})")
        if not 0 <= sample.taken_at <= LATEST:
            raise self._bad(line, f"taken_at is {sample.taken_at}, which is no time since 1970")
        self.samples.add(line.text, sample)

    def _beside(self, text: bytes) -> bool:
        """Take a line that stands beside the samples; False where it is none of those."""
        if text.startswith(b'{"job":'):
            self.jobs.take(msgspec.json.decode(text, type=_Job).job)
        elif text.startswith(b'{"matched":'):
            self.predictions.take(msgspec.json.decode(text, type=_Matched).matched)
        elif text.startswith(b'{"peaks":'):
            self.peaks.take(msgspec.json.decode(text, type=_Peaks).peaks)
        elif text.startswith(b'{"prediction":'):
            self.predictions.know(msgspec.json.decode(text, type=_Predicted).prediction)
        else:
            return False
        return True

    def _read_header(self, line: FileLine) -> RecordingHeader | None:
        """The header in the first line; None when there is a Sample in its place, as in a file put together by hand."""
        if "vramtui_recording" not in msgspec.json.decode(line.text, type=dict[str, msgspec.Raw]):
            self.warnings.append("the recording has no header line")
            return None
        header = msgspec.json.decode(line.text, type=RecordingHeader)
        if header.vramtui_recording != SCHEMA:
            raise self._bad(
                line, f"made by another version (format {header.vramtui_recording}, this one reads {SCHEMA})"
            )
        return header

    def _bad(self, line: FileLine, why: str) -> UserError:
        return UserError(f"{self._name}, line {line.number}: {printable(why)}")


class _Job(msgspec.Struct, forbid_unknown_fields=True):
    job: JobLine


class _Matched(msgspec.Struct, forbid_unknown_fields=True):
    matched: MatchedLine


class _Peaks(msgspec.Struct, forbid_unknown_fields=True):
    peaks: PeaksLine


class _Predicted(msgspec.Struct, forbid_unknown_fields=True):
    prediction: PredictionLine
