"""Recordings: the samples of a while, one JSON object a line, so that a torn file loses one line and no more.

The first line is the header, `{"vramtui_recording": 1, "started_at": …, "interval": …, "versions": {…}}`; every other
line is one Sample in its JSON form (`vramtui.core.readings`) or what changed since the one before
(`vramtui.records.deltas`); a whole sample comes at least once a minute. After a sample come lines about what the jobs'
own probes told (`vramtui.records.recorded_jobs`), what presets predicted for its processes
(`vramtui.records.recorded_predictions`) and peaks that no sample shows (`vramtui.records.recorded_peaks`), where there
is any of it. A file whose name ends in `.gz` is compressed,
flushed after each sample; its gzip members may be several. The reader goes by what is in the file, not by its name.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from gzip import GzipFile
from pathlib import Path
from types import MappingProxyType
from typing import IO, Annotated

import msgspec
from msgspec import Meta

from vramtui.core.errors import UserError
from vramtui.core.history import Peak
from vramtui.core.observed import ObservedJob
from vramtui.core.predicted import Prediction
from vramtui.core.readings import SCHEMA, ProcessKey, Sample, encode_sample
from vramtui.core.text import printable
from vramtui.records.cleaning import clean
from vramtui.records.deltas import DeltaLine, difference
from vramtui.records.lines import Line, LineTooLong, read_lines
from vramtui.records.recorded_jobs import JobLine, ReadJobs, WrittenJobs
from vramtui.records.recorded_peaks import PeaksLine, ReadPeaks, WrittenPeaks
from vramtui.records.recorded_predictions import MatchedLine, PredictionLine, ReadPredictions, WrittenPredictions
from vramtui.records.recorded_samples import Samples, sample_in

WHOLE_EVERY = 60.0  # seconds between samples that stand by themselves
LATEST = 253_402_300_799.0  # the last second of the year 9999
TOLD_EVERY = 100  # lines
NOTHING: Mapping[ProcessKey, Prediction] = MappingProxyType({})
NO_PEAKS: Mapping[ProcessKey, Peak] = MappingProxyType({})


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: the format's version, seconds since the epoch, seconds between samples, and what recorded it."""

    vramtui_recording: int = SCHEMA
    started_at: float | None = None
    interval: Annotated[float, Meta(gt=0)] | None = None
    versions: dict[str, str] = {}


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A recording as read: its samples by the time they were taken, and what a person should know of the file.

    `jobs` and `predictions` are empty where it was recorded without them.
    """

    header: Header
    samples: Sequence[Sample]
    jobs: ReadJobs = msgspec.field(default_factory=ReadJobs)
    predictions: ReadPredictions = msgspec.field(default_factory=ReadPredictions)
    peaks: ReadPeaks = msgspec.field(default_factory=ReadPeaks)
    warnings: tuple[str, ...] = ()

    @property
    def times(self) -> Sequence[float]:
        """When each sample was taken, in seconds since the epoch."""
        return self.samples.times if isinstance(self.samples, Samples) else [one.taken_at for one in self.samples]

    def jobs_at(self, when: float) -> tuple[ObservedJob, ...]:
        """What each job had told by `when`, seconds since the epoch."""
        return self.jobs.at(when)

    def predictions_at(self, when: float) -> dict[ProcessKey, Prediction]:
        """The prediction that each process had at `when`."""
        return self.predictions.at(when)

    def peaks_at(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """The peaks that were noted at the sample of `when` and that no sample shows."""
        return self.peaks.at(when)

    def every_prediction(self) -> tuple[Prediction, ...]:
        """All that was predicted in it."""
        return self.predictions.every()


class RecordingWriter:
    """Writes a recording to a new file; every line is on its way to the disk when `write` returns.

    Args:
        path: where to; compressed when the name ends in `.gz`.
        header: the first line.

    Raises:
        UserError: there is such a file already, or it cannot be written (also from `write` and `close`).
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        try:
            self._file: IO[bytes] = path.open("xb")
        except FileExistsError:
            raise UserError(f"{printable(str(path))} exists already; a recording never overwrites") from None
        except OSError as error:
            raise self._failure(error) from None
        self._zipped = GzipFile(fileobj=self._file, mode="wb", filename="") if path.suffix == ".gz" else None
        self._last: Sample | None = None
        self._next_whole = float("-inf")
        self._jobs = WrittenJobs()
        self._predictions = WrittenPredictions()
        self._peaks = WrittenPeaks()
        self._lines(msgspec.json.encode(header))

    def write(
        self,
        sample: Sample,
        jobs: Sequence[ObservedJob] = (),
        predictions: Mapping[ProcessKey, Prediction] = NOTHING,
        peaks: Mapping[ProcessKey, Peak] = NO_PEAKS,
    ) -> None:
        """Add one sample: what changed since the last one where that will do.

        Args:
            sample: what was seen.
            jobs: what each job with a probe has told so far.
            predictions: those of the sample's processes that have one.
            peaks: what the sample's processes held at most in their lives, as far as that is known.
        """
        predicted = self._predictions.lines(sample, predictions)
        told = self._jobs.lines(sample.taken_at, jobs)
        self._lines(self._sample_line(sample), *predicted, *self._peaks.lines(sample, peaks), *told)

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

    def close(self) -> None:
        """End the file."""
        try:
            if self._zipped is not None:
                self._zipped.close()
            self._file.close()
        except OSError as error:
            raise self._failure(error) from None

    def _lines(self, *lines: bytes) -> None:
        text = b"".join(line + b"\n" for line in lines)
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
        return UserError(f"the recording {printable(str(self.path))} cannot be written: {printable(reason).lower()}")


def read_recording(path: Path, progress: Callable[[float], None] | None = None) -> Recording:
    """The recording in `path`, plain or gzip. A last line that was cut off is left out, and a warning says so.

    Args:
        path: the file.
        progress: is told now and then how much of the file is read, from 0 to 1.

    Raises:
        UserError: it cannot be read, holds no sample, or a line (which the sentence names) is not a Sample.
    """
    name = printable(str(path))
    reading = _Reading(name)
    try:
        with path.open("rb") as file:
            size = max(1, path.stat().st_size)
            for line in read_lines(file):
                reading.take(line)
                if progress is not None and not line.number % TOLD_EVERY:
                    progress(min(1.0, file.tell() / size))
    except OSError as error:
        raise UserError(f"{name} cannot be read: {printable(error.strerror or str(error)).lower()}") from None
    except LineTooLong as error:
        raise UserError(f"{name}, line {error.args[0]}: longer than any sample; is this a recording?") from None
    except zlib.error:
        raise UserError(f"{name}: the compressed data is damaged; {reading.last} lines of it can be read") from None
    return reading.recording()


class _Reading:
    """A recording while it is read."""

    def __init__(self, name: str) -> None:
        self.last = 0
        self._name = name
        self._header: Header | None = None
        self._samples = Samples()
        self._jobs = ReadJobs()
        self._predictions = ReadPredictions()
        self._peaks = ReadPeaks()
        self._warnings: list[str] = []

    def take(self, line: Line) -> None:
        self.last = line.number
        try:
            self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if line.whole:
                raise self._bad(line, str(error)) from None
            self._warnings.append(f"the recording was cut off in line {line.number}, which is left out")

    def recording(self) -> Recording:
        if not self._samples:
            raise UserError(f"{self._name} holds no sample")
        if self._samples.sort():
            self._warnings.append("the clock was set back while it was recorded; samples are in order of their times")
        return Recording(
            header=self._header or Header(),
            samples=self._samples.in_hand(),
            jobs=self._jobs,
            predictions=self._predictions,
            peaks=self._peaks,
            warnings=tuple(self._warnings),
        )

    def _decode(self, line: Line) -> None:
        if self._header is None and not self._samples:
            self._header = self._read_header(line)
            if self._header is not None:
                return
        if self._beside(line.text):
            return
        sample = sample_in(line.text, self._samples.last)
        if sample.schema != SCHEMA:
            raise self._bad(line, f"made by another version (schema {sample.schema}, this one reads {SCHEMA})")
        if not 0 <= sample.taken_at <= LATEST:
            raise self._bad(line, f"taken_at is {sample.taken_at}, which is no time since 1970")
        self._samples.add(line.text, sample)

    def _beside(self, text: bytes) -> bool:
        """Take a line that stands beside the samples; False where it is none of those."""
        if text.startswith(b'{"job":'):
            self._jobs.take(msgspec.json.decode(text, type=_Job).job)
        elif text.startswith(b'{"matched":'):
            self._predictions.take(msgspec.json.decode(text, type=_Matched).matched)
        elif text.startswith(b'{"peaks":'):
            self._peaks.take(msgspec.json.decode(text, type=_Peaks).peaks)
        elif text.startswith(b'{"prediction":'):
            self._predictions.know(msgspec.json.decode(text, type=_Predicted).prediction)
        else:
            return False
        return True

    def _read_header(self, line: Line) -> Header | None:
        """The header in the first line; None when there is a Sample in its place, as in a file put together by hand."""
        if "vramtui_recording" not in msgspec.json.decode(line.text, type=dict[str, msgspec.Raw]):
            self._warnings.append("the recording has no header line")
            return None
        header = msgspec.json.decode(line.text, type=Header)
        if header.vramtui_recording != SCHEMA:
            raise self._bad(
                line, f"made by another version (format {header.vramtui_recording}, this one reads {SCHEMA})"
            )
        return header

    def _bad(self, line: Line, why: str) -> UserError:
        return UserError(f"{self._name}, line {line.number}: {printable(why)}")


class _Job(msgspec.Struct, forbid_unknown_fields=True):
    job: JobLine


class _Matched(msgspec.Struct, forbid_unknown_fields=True):
    matched: MatchedLine


class _Peaks(msgspec.Struct, forbid_unknown_fields=True):
    peaks: PeaksLine


class _Predicted(msgspec.Struct, forbid_unknown_fields=True):
    prediction: PredictionLine
