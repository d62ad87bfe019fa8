"""Recordings that are shown while they grow: one whose file is still being read, and one that comes line by line while
it is made.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Problem, ProcessKey, Sample
from vramtui.core.observation.track import Peak
from vramtui.records.recording.decoder import RecordingDecoder, WrongTimeError
from vramtui.records.recording.reader import RecordingReader
from vramtui.records.recording.recording import Recording
from vramtui.records.recording.samples import is_whole

AT_ONCE = 0.7  # seconds of reading before anything is shown
TURN = 0.02  # seconds of reading at a time, so that whoever shows it comes to his turn
BREATH = 0.002


def open_recording(path: Path, at_once: float = AT_ONCE) -> "Recording | GrowingRecording":
    """The recording in `path`: all of it, or as much as can be read in `at_once` seconds and the rest later.

    Raises:
        UserError: as `read_recording` does, for what is read at once.
    """
    reading = RecordingReader(path)
    going, until = reading.go(), time.monotonic() + at_once
    for fraction in going:
        if time.monotonic() > until and reading.samples:
            return GrowingRecording(reading, going, fraction)
    return reading.recording()


class GrowingRecording:
    """A `Recording` of which more is read from moment to moment, until `reading` is None.

    Args:
        reading: of which a part is read.
        going: the rest of it.
        fraction: how much of the file is read.
    """

    def __init__(self, reading: RecordingReader, going: Iterator[float], fraction: float) -> None:
        self._read = reading
        self._going = going
        self._fraction: float | None = fraction
        self._thread: threading.Thread | None = None
        self.samples = reading.samples
        self.jobs_at, self.peaks_at = reading.jobs.at, reading.peaks.at
        self.predictions_at, self.every_prediction = reading.predictions.at, reading.predictions.every

    @property
    def times(self) -> Sequence[float]:
        return self.samples.times

    @property
    def reading(self) -> float | None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_on, name="read recording", daemon=True)
            self._thread.start()
        return self._fraction

    def wait(self) -> None:
        """Until all of it is read."""
        while self.reading is not None and self._thread is not None:
            self._thread.join()

    def _go_on(self) -> None:
        until = time.monotonic() + TURN
        try:
            for fraction in self._going:
                self._fraction = fraction
                if time.monotonic() > until:
                    time.sleep(BREATH)
                    until = time.monotonic() + TURN
        except UserError as error:
            self._read.warnings.append(f"{error}; what stands before that is shown")
        finally:
            self._fraction = None

    @property
    def warnings(self) -> Sequence[str]:
        return tuple(self._read.warnings)


MOST_DAMAGED = 3  # lines in a row
TOLD_FOR = 60.0  # seconds after a damaged line in which samples say so


class LiveRecording:
    """Takes lines on one thread; what they tell beside the samples may be asked for on another. Of the past it keeps
    nothing, so that it may go on for ever.

    A damaged line among right ones hides itself; one in the place of the first sample, or several in a row, are no
    recording. What only says what changed follows nothing behind a damaged sample, up to the next whole one, a minute
    later at most.
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
        return self._decoder.jobs.at(float("inf"))

    def peaks(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        return self._decoder.peaks.pop_until(when)
