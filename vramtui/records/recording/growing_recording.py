"""A recording that is shown while most of it is still being read."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.prediction import Prediction
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.track import Peak
from vramtui.records.recording.reader import RecordingReader
from vramtui.records.recording.recording import Recording

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
    """As a `Recording`, only that there is more of it from moment to moment until `reading` is None.

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

    @property
    def reading(self) -> float | None:
        """How much of the file is read, from 0 to 1; None when there is no more to come. Asking begins the reading."""
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
        """What a person should know of the file, as far as it is read."""
        return tuple(self._read.warnings)

    @property
    def samples(self) -> Sequence[Sample]:
        """By the time they were taken."""
        return self._read.samples

    @property
    def times(self) -> Sequence[float]:
        """When each of them was taken, in seconds since the epoch."""
        return self._read.samples.times

    def jobs_at(self, when: float) -> tuple[ObservedJob, ...]:
        """What each job had told by `when`."""
        return self._read.jobs.at(when)

    def predictions_at(self, when: float) -> dict[ProcessKey, Prediction]:
        """The prediction that each process had at `when`."""
        return self._read.predictions.at(when)

    def peaks_at(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """The peaks that were noted at the sample of `when` and that no sample shows."""
        return self._read.peaks.at(when)

    def every_prediction(self) -> tuple[Prediction, ...]:
        """All that was predicted, as far as it is read."""
        return self._read.predictions.every()
