"""A recording that comes line by line while it is made.

A damaged line among right ones hides itself; one in the place of the first sample, or several in a row, are no
recording. What only says what changed follows nothing behind a damaged sample, up to the next whole one, a minute
later at most.
"""

from collections.abc import Sequence

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Problem, ProcessKey, Sample
from vramtui.core.observation.track import Peak
from vramtui.records.recording.decoder import RecordingDecoder, WrongTimeError
from vramtui.records.recording.samples import is_whole

MOST_DAMAGED = 3  # lines in a row
TOLD_FOR = 60.0  # seconds after a damaged line in which samples say so


class LiveRecording:
    """Takes lines on one thread; what they tell beside the samples may be asked for on another. Of the past it keeps
    nothing, so that it may go on for ever.
    """

    def __init__(self) -> None:
        self._decoder = RecordingDecoder(is_live=True)
        self._has_come = False
        self._damaged, self._in_a_row = 0, 0
        self._why = ""
        self._told_until: float | None = None

    @property
    def interval(self) -> float | None:
        """Seconds between samples, as the header has it."""
        return None if self._decoder.header is None else self._decoder.header.interval

    @property
    def versions(self) -> dict[str, str]:
        """What made it."""
        return {} if self._decoder.header is None else self._decoder.header.versions

    def take(self, line: bytes) -> Sample | None:
        """The sample that the next line tells; None where it tells something else, or is damaged.

        Raises:
            UserError: it is no recording, or of a newer version.
        """
        try:
            sample = self._decoder.take(line)
        except (WrongTimeError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._pass_over(line, printable(str(error)))
            return None
        if sample is None:
            return None
        self._has_come, self._in_a_row = True, 0
        return sample if not self._why else self._with_problem(sample)

    def _pass_over(self, line: bytes, why: str) -> None:
        follows_nothing = self._has_come and self._decoder.last is None and not is_whole(line)
        if not follows_nothing:
            self._damaged, self._in_a_row = self._damaged + 1, self._in_a_row + 1
            self._why, self._told_until = why, None
        if not self._has_come or self._in_a_row >= MOST_DAMAGED:
            raise UserError(why)
        self._decoder.pass_over(line)

    def _with_problem(self, sample: Sample) -> Sample:
        """The sample with a problem that tells of the damage, for a while."""
        if self._told_until is None:
            self._told_until = sample.taken_at + TOLD_FOR
        if sample.taken_at > self._told_until:
            self._why = ""
            return sample
        lines = f"{self._damaged:,} lines are" if self._damaged > 1 else "A line is"
        problem = Problem(where="damaged lines", message=f"{lines} left out; the last: {self._why}")
        return msgspec.structs.replace(sample, problems=(*sample.problems, problem))

    def jobs(self) -> tuple[ObservedJob, ...]:
        """What each job has told by now."""
        return self._decoder.jobs.at(float("inf"))

    def peaks(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """The peaks that were noted up to the sample of `when` and that no sample shows; each is given once."""
        return self._decoder.peaks.pop_until(when)
