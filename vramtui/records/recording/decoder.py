"""What the lines of a recording tell, one after another; the same for a file and for a recording that is under way.

A newer version may add fields to any object, and kinds of lines: both are passed over. What cannot be read without
knowing more has a higher number, in the header and in each whole sample, and is refused.
"""

from typing import Any

import msgspec

from vramtui.core.base.compatibility import check_format
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable, shortened
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import SCHEMA, Sample
from vramtui.core.schema.workload import Workload
from vramtui.records.recording.deltas import DeltaLine
from vramtui.records.recording.jobs import JobLine, ReadJobs
from vramtui.records.recording.peaks import PeaksLine, ReadPeaks
from vramtui.records.recording.predictions import MatchedLine, PredictionLine, ReadPredictions
from vramtui.records.recording.recording import RecordingHeader
from vramtui.records.recording.samples import is_whole, sample_in

LATEST = 253_402_300_799.0  # the last second of the year 9999
MOST_WAITING = 1 << 16  # peaks of a recording that goes on, whose sample has not come
MOST_WARNINGS = 100
LONGEST_NAME = 40  # characters of a kind of line, in a warning
BESIDE = (b'{"job":', b'{"matched":', b'{"peaks":', b'{"prediction":')  # how lines that stand beside the samples begin


class WrongTimeError(UserError):
    """A sample of no time at which there were GPUs."""


class RecordingDecoder:
    """Takes line after line.

    Args:
        is_live: it goes on for ever, and nothing is asked of its past: of jobs the latest is kept, and no predictions,
            which whoever watches makes anew.

    Attributes:
        header: of the first line, where there is one.
        last: the latest sample.
        warnings: what a person should know of it.
    """

    def __init__(self, *, is_live: bool = False) -> None:
        self._is_live = is_live
        self.header: RecordingHeader | None = None
        self.last: Sample | None = None
        self.jobs = ReadJobs(keeps_past=not is_live)
        self.predictions = ReadPredictions()
        self.peaks = ReadPeaks(MOST_WAITING if is_live else None)
        self.warnings: list[str] = []
        self._began = False

    def take(self, text: bytes) -> Sample | None:
        """The sample that the next line tells; None where it tells something else.

        Raises:
            msgspec.DecodeError: it is no line of a recording (which UnicodeDecodeError also tells).
            NewerFormatError: it can be read by a newer version only.
            WrongTimeError: its sample is of an impossible time.
        """
        try:
            return self._take(text)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(shortened(str(error))) from None
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None

    def pass_over(self, text: bytes) -> None:
        """Leave out a damaged line: unless it stands beside the samples, changes that come next follow nothing."""
        if not text.startswith(BESIDE):
            self.last = None

    def _take(self, text: bytes) -> Sample | None:
        if not self._began:
            header = self._read_header(text)
            self._began = True
            if header is not None:
                self.header = header
                return None
        if self._take_other_line(text):
            return None
        self.last = self._sample(text)
        return self.last

    def _sample(self, text: bytes) -> Sample:
        try:
            sample = sample_in(text, self.last)
        except msgspec.ValidationError:
            if is_whole(text):
                check_format(msgspec.json.decode(text, type=_Version).schema, SCHEMA)
            raise
        check_format(sample.schema, SCHEMA)
        if not 0 <= sample.taken_at <= LATEST:
            raise WrongTimeError(f"taken_at is {sample.taken_at}, which is no time since 1970")
        return sample

    def _take_other_line(self, text: bytes) -> bool:
        """Take a line that stands beside the samples; False where it is none of those."""
        if text.startswith(b'{"job":'):
            self.jobs.take(msgspec.json.decode(text, type=_Job).job)
        elif self._is_live and text.startswith((b'{"matched":', b'{"prediction":')):
            return True
        elif text.startswith(b'{"matched":'):
            self.predictions.take(msgspec.json.decode(text, type=_Matched).matched)
        elif text.startswith(b'{"peaks":'):
            self.peaks.take(msgspec.json.decode(text, type=_Peaks).peaks)
        elif text.startswith(b'{"prediction":'):
            if not self.predictions.know(msgspec.json.decode(text, type=_Predicted).prediction):
                self._warn("a prediction in it is of a kind that this version does not know, and is left out")
        else:
            return self._is_of_another_kind(text)
        return True

    def _is_of_another_kind(self, text: bytes) -> bool:
        """Whether it is an object under one name, as every line beside the samples is, and none that is known here."""
        if text.startswith((b'{"delta":', b'{"schema":', b'{"taken_at":')):
            return False
        document: Any = msgspec.json.decode(text)
        if not (isinstance(document, dict) and len(document) == 1):
            return False
        ((name, value),) = document.items()
        if not isinstance(value, dict):
            return False
        self._warn(f"what it says of {printable(name[:LONGEST_NAME])!r} is of a newer version, and is left out")
        return True

    def _warn(self, sentence: str) -> None:
        if len(self.warnings) < MOST_WARNINGS and sentence not in self.warnings:
            self.warnings.append(sentence)

    def _read_header(self, text: bytes) -> RecordingHeader | None:
        """The header in the first line; None when there is a Sample in its place, as in a file put together by hand."""
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        if "vramtui_recording" not in fields:
            self.warnings.append("the recording has no header line")
            return None
        check_format(msgspec.json.decode(fields["vramtui_recording"], type=int), SCHEMA)
        return msgspec.json.decode(text, type=RecordingHeader)


class _Version(msgspec.Struct):
    schema: int = SCHEMA


class _Job(msgspec.Struct):
    job: JobLine


class _Matched(msgspec.Struct):
    matched: MatchedLine


class _Peaks(msgspec.Struct):
    peaks: PeaksLine


class _Predicted(msgspec.Struct):
    prediction: PredictionLine


# msgspec learns what a type is made of when it first reads one, and crashes where two threads make it do so at once.
# Many hosts have a thread each; whoever loads this module learns for all of them.
_LEARNT = tuple(
    msgspec.json.Decoder(kind)
    for kind in (RecordingHeader, DeltaLine, ObservedJob, Workload, _Version, _Job, _Matched, _Peaks, _Predicted)
)
