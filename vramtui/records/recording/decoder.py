"""The lines of a recording, one after another; the same for a file and for a recording that goes on.

A newer version may add fields to any object, and kinds of lines: both are ignored. Where an older reader would be wrong
about what it reads, the number in the header and in each whole sample goes up, and the reader refuses it.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vramtui.core.base.compatibility import check_format
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable, shortened
from vramtui.core.observation.history import Peak
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import SCHEMA, Problem, ProcessKey, Sample
from vramtui.core.schema.workload import Workload
from vramtui.records.recording.jobs import JobLine, ReadJobs
from vramtui.records.recording.processes import PredictionLine, ProcessesLine, ReadProcesses
from vramtui.records.recording.samples import ChangesLine, is_whole, sample_in

LATEST = 253_402_300_799.0  # the last second of the year 9999
MOST_WARNINGS = 100
LONGEST_NAME = 40  # characters of a kind of line, in a warning
OTHERS = (b'{"job":', b'{"prediction":', b'{"processes":')  # how lines that are not samples begin
MOST_DAMAGED = 3  # lines in a row
TOLD_FOR = 60.0  # seconds after a damaged line in which samples say so


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the format's version, seconds since the epoch, seconds between samples, and what recorded it."""

    vramtui_recording: int = SCHEMA
    started_at: float | None = None
    interval: Annotated[float, Meta(gt=0)] | None = None
    versions: dict[str, str] = {}


class WrongTimeError(UserError):
    """A sample whose time is impossible."""


class RecordingDecoder:
    """Takes line after line. If it `is_live`, its past is not needed: only the latest state of jobs is kept, and no
    predictions.
    """

    def __init__(self, *, is_live: bool = False) -> None:
        self._is_live = is_live
        self.header: RecordingHeader | None = None
        self.last: Sample | None = None
        self.jobs = ReadJobs(keeps_past=not is_live)
        self.processes = ReadProcesses(keeps_past=not is_live)
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
                sample = sample_in(text, self.last)
            except msgspec.ValidationError:
                if is_whole(text):
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
        if text.startswith(b'{"job":'):
            self.jobs.take(msgspec.json.decode(text, type=_Job).job)
        elif text.startswith(b'{"processes":'):
            self.processes.take(msgspec.json.decode(text, type=_Processes).processes)
        elif text.startswith(b'{"prediction":'):
            if not self._is_live and not self.processes.know(msgspec.json.decode(text, type=_Predicted).prediction):
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
        self._decoder = RecordingDecoder(is_live=True)
        self._has_come = False
        self._damaged, self._in_a_row = 0, 0
        self._why = ""
        self._told_until: float | None = None

    @property
    def interval(self) -> float | None:
        return None if self._decoder.header is None else self._decoder.header.interval

    @property
    def versions(self) -> dict[str, str]:
        return {} if self._decoder.header is None else self._decoder.header.versions

    def take(self, line: bytes) -> Sample | None:
        """The sample in the next line; None if it is another kind of line, or damaged.

        Raises:
            UserError: it is not a recording, or of a newer version.
        """
        try:
            sample = self._decoder.take(line)
        except (WrongTimeError, msgspec.DecodeError, UnicodeDecodeError) as error:
            why = printable(str(error))
            waits_for_whole = self._has_come and self._decoder.last is None and not is_whole(line)
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


class _Job(msgspec.Struct):
    job: JobLine


class _Processes(msgspec.Struct):
    processes: ProcessesLine


class _Predicted(msgspec.Struct):
    prediction: PredictionLine


# msgspec learns a type when it first reads one, and crashes if two threads make it do so at once. Many hosts have a
# thread each; importing this module learns for all of them.
_LEARNT = tuple(
    msgspec.json.Decoder(kind)
    for kind in (RecordingHeader, ChangesLine, ObservedJob, Workload, _Version, _Job, _Processes, _Predicted)
)
