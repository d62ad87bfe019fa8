"""Recordings as files, which may be compressed and cut off, or go on: one JSON object a line, so that a torn file
loses one line only.

The first line is the header, `{"vramtui_recording": 1, "started_at": …, "interval": …, "versions": {…}}`. Every sample
is one line: the whole Sample as JSON (`vramtui.core.observation.readings`) at least once a minute, and otherwise
`{"changes": {…}}` since the sample before. Lines about predictions and peaks of its processes and reports of probes
follow it if there are any (`samples.py`).

The 1 of the header, and `schema` in a whole sample, is the format's only number. It goes up if an older reader would
be wrong about what it reads, which then refuses it; readers ignore new fields and new kinds of lines.
A file whose name ends in `.gz` is compressed and flushed after each sample; it may have several gzip members. The
reader looks at the file's content, not its name.
"""

import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from gzip import GzipFile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.file_limits import RECORDING
from vramtui.core.base.text import printable, shortened
from vramtui.core.observation.history import Peak
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import SCHEMA, Problem, ProcessKey, Sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.core.schema.workload import Workload
from vramtui.models.readers.bounded import open_plain
from vramtui.records.export.plain import clean
from vramtui.records.recording import samples
from vramtui.records.recording.samples import (
    ChangesLine,
    JobLine,
    ReadJobs,
    WrittenJobs,
    WrittenProcesses,
    changes_between,
)

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16
TOLD_EVERY = 100  # lines
AT_ONCE = 0.7  # seconds of reading before anything is shown
TURN = 0.02  # seconds of reading at a time, so that the screen has its turn
BREATH = 0.002
LATEST = 253_402_300_799.0  # the last second of the year 9999
MOST_WARNINGS = 100
LONGEST_NAME = 40  # characters of a kind of line, in a warning
OTHERS = (b'{"job":', b'{"prediction":', b'{"processes":')  # how lines that are not samples begin
MOST_DAMAGED = 3  # lines in a row
TOLD_FOR = 60.0  # seconds after a damaged line in which samples say so


class NewerFormatError(UserError):
    """A file was written by a version whose format this one does not know."""


def check_format(version: int, known: int) -> None:
    """See that this version can read it. The number of a format goes up where an older reader would be wrong about what
    it reads; what only adds fields keeps it, and readers pass over what they do not know. Raises NewerFormatError if it
    cannot.
    """
    if version > known:
        raise NewerFormatError(
            f"made by a newer version of vramtui (format {version}, this one reads {known}); upgrade it"
        )


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the format's version, seconds since the epoch, seconds between samples, and what recorded it."""

    vramtui_recording: int = SCHEMA
    started_at: float | None = None
    interval: Annotated[float, Meta(gt=0)] | None = None
    versions: dict[str, str] = {}


class WrongTimeError(UserError):
    """A sample whose time is impossible."""


class RecordingDecoder:
    """Takes line after line. If it `is_live` it keeps only the latest state of jobs, and no predictions."""

    def __init__(self, *, is_live: bool = False) -> None:
        self._is_live = is_live
        self.header: RecordingHeader | None = None
        self.last: Sample | None = None
        self.jobs = ReadJobs(keeps_past=not is_live)
        self.processes = samples.ReadProcesses(keeps_past=not is_live)
        self.warnings: list[str] = []
        self._began = False

    def take(self, text: bytes) -> Sample | None:
        """The sample in the next line; None if it is another kind of line.

        Raises:
            msgspec.DecodeError: it is not a line of a recording (UnicodeDecodeError also says so).
            NewerFormatError: only a newer version can read it.
            WrongTimeError: the time of its sample is impossible.
        """
        try:
            if not self._began:
                fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
                if "vramtui_recording" in fields:
                    check_format(msgspec.json.decode(fields["vramtui_recording"], type=int), SCHEMA)
                    self.header = msgspec.json.decode(text, type=RecordingHeader)
                    self._began = True
                    return None
                self.warnings.append("the recording has no header line")  # as in a file put together by hand
            self._began = True
            if self._takes_other_line(text):
                return None
            try:
                sample = samples.sample_in(text, self.last)
            except msgspec.ValidationError:
                if samples.is_whole(text):
                    check_format(msgspec.json.decode(text, type=_Version).schema, SCHEMA)
                raise
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(shortened(str(error))) from None
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None
        check_format(sample.schema, SCHEMA)
        if not 0 <= sample.taken_at <= LATEST:
            raise WrongTimeError(f"taken_at is {sample.taken_at}, which is not a time since 1970")
        self.last = sample
        return sample

    def pass_over(self, text: bytes) -> None:
        """Leave out a damaged line: after a damaged sample, changes have no sample before them."""
        if not text.startswith(OTHERS):
            self.last = None

    def _takes_other_line(self, text: bytes) -> bool:
        """Take a line that is not a sample; False if it is one."""
        if text.startswith(b'{"prediction":') and self._is_live:
            return True
        if text.startswith(OTHERS):
            line = msgspec.json.decode(text, type=_OtherLine)
            if line.job is not UNSET:
                self.jobs.take(line.job)
            elif line.processes is not UNSET:
                self.processes.take(line.processes)
            elif line.prediction is not UNSET and not self.processes.know(line.prediction):
                self._warn("a prediction of a kind that this version does not know is left out")
        elif text.startswith((b'{"changes":', b'{"schema":', b'{"taken_at":')):
            return False
        else:
            document: Any = msgspec.json.decode(text)
            if not (isinstance(document, dict) and len(document) == 1):
                return False
            ((name, value),) = document.items()
            if not isinstance(value, dict):
                return False
            self._warn(f"lines of a newer version, {printable(name[:LONGEST_NAME])!r}, are left out")
        return True

    def _warn(self, sentence: str) -> None:
        if len(self.warnings) < MOST_WARNINGS and sentence not in self.warnings:
            self.warnings.append(sentence)


class LiveRecording:
    """A recording that goes on: one thread gives it lines, another asks for jobs and peaks. It keeps nothing of the
    past.

    A single damaged line is left out. A damaged first sample, or several damaged lines in a row, end it. After a
    damaged sample, changes wait for the next whole sample, up to a minute.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> "Self":
        """Forget all: a connection that is made anew begins another recording."""
        self._decoder = RecordingDecoder(is_live=True)
        self._has_come = False
        self._damaged, self._in_a_row = 0, 0
        self._why = ""
        self._told_until: float | None = None
        return self

    @property
    def interval(self) -> float | None:
        return None if self._decoder.header is None else self._decoder.header.interval

    def take(self, line: bytes) -> Sample | None:
        """The sample in the next line; None if it is another kind of line, or damaged. Raises UserError if it is not a
        recording, or of a newer version.
        """
        try:
            sample = self._decoder.take(line)
        except (WrongTimeError, msgspec.DecodeError, UnicodeDecodeError) as error:
            why = printable(str(error))
            waits_for_whole = self._has_come and self._decoder.last is None and not samples.is_whole(line)
            if not waits_for_whole:
                self._damaged, self._in_a_row = self._damaged + 1, self._in_a_row + 1
                self._why, self._told_until = why, None
            if not self._has_come or self._in_a_row >= MOST_DAMAGED:
                raise UserError(why) from None
            self._decoder.pass_over(line)
            return None
        if sample is None:
            return None
        self._has_come, self._in_a_row = True, 0
        if not self._why:
            return sample
        if self._told_until is None:
            self._told_until = sample.taken_at + TOLD_FOR
        if sample.taken_at > self._told_until:
            self._why = ""
            return sample
        lines = f"{self._damaged:,} lines are" if self._damaged > 1 else "A line is"
        problem = Problem(where="damaged lines", message=f"{lines} left out; the last: {self._why}")
        return msgspec.structs.replace(sample, problems=(*sample.problems, problem))

    def jobs(self) -> tuple[ObservedJob, ...]:
        return self._decoder.jobs.at(float("inf"))

    def peaks(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        return self._decoder.processes.pop_peaks(when)


class _Version(msgspec.Struct):
    schema: int = SCHEMA


class _OtherLine(msgspec.Struct):
    job: JobLine | UnsetType = UNSET
    processes: samples.ProcessesLine | UnsetType = UNSET
    prediction: samples.PredictionLine | UnsetType = UNSET


# msgspec learns a type when it first reads one, and crashes if two threads make it do so at once. Many hosts have a
# thread each; importing this module learns for all of them.
_LEARNT = tuple(
    msgspec.json.Decoder(kind)
    for kind in (RecordingHeader, samples.ChangesLine, ObservedJob, Workload, _Version, _OtherLine)
)


class FileLine(NamedTuple):
    """A line without its newline, counted from 1. `whole` is False if the file ends before the line does."""

    number: int
    text: bytes
    whole: bool


class LineTooLongError(Exception):
    """A line of more than RECORDING.size bytes. Its only argument is the line's number."""


def read_lines(file: IO[bytes]) -> Iterator[FileLine]:
    """Every line of `file`, which may be gzip of one or more members; only the last may be cut off. Raises
    LineTooLongError if a line does not end, and zlib.error if compressed data is damaged, not only cut off.
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
        self._read = samples.Samples()
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
        left out with a warning. Raises UserError as `read_recording` does.
        """
        name, last = self._name, 0
        warnings = self._decoder.warnings
        try:
            file, size = open_plain(self._path, pipes=True)
            with file:
                for line in read_lines(file):
                    try:
                        sample = self._decoder.take(line.text)
                        if sample is not None:
                            self._read.add(line.text, sample)
                    except (NewerFormatError, WrongTimeError, msgspec.DecodeError, UnicodeDecodeError) as error:
                        why = printable(str(error))
                        if isinstance(error, UserError) or (line.whole and not self.samples):
                            raise UserError(f"{name}, line {line.number}: {why}") from None
                        if line.whole:
                            self._damaged = self._damaged or f"line {line.number} is damaged: {why}"
                            self._left_out += 1
                            self._decoder.pass_over(line.text)
                        else:
                            warnings.append(f"the recording was cut off in line {line.number}, which is left out")
                    last = line.number
                    if not last % TOLD_EVERY:
                        yield min(1.0, file.tell() / size) if size else 0.0
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
        while self.reading is not None and self._thread is not None:
            self._thread.join()


def read_recording(path: Path, progress: Callable[[float], None] | None = None) -> Recording:
    """The recording in `path`, plain or gzip. A last line that was cut off is left out, and a warning says so.
    `progress` is called with how much of the file is read, from 0 to 1. Raises UserError if it cannot be read, holds no
    sample, or a line (which the sentence names) is not a sample.
    """
    recording = Recording(path)
    for fraction in recording.read():
        if progress is not None:
            progress(fraction)
    recording.samples = recording._read.in_hand()  # noqa: SLF001 - of this module
    return recording


def open_recording(path: Path, at_once: float = AT_ONCE) -> Recording:
    """The recording in `path`: all of it, or as much as can be read in `at_once` seconds and the rest later. Raises
    UserError as `read_recording` does, for what is read at once.
    """
    recording = Recording(path)
    rest, until = recording.read(), time.monotonic() + at_once
    for fraction in rest:
        if time.monotonic() > until and recording.samples:
            recording._rest, recording.fraction = rest, fraction  # noqa: SLF001 - read on by who asks for `reading`
            return recording
    recording.samples = recording._read.in_hand()  # noqa: SLF001 - of this module
    return recording


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


if TYPE_CHECKING:
    from typing_extensions import Self
