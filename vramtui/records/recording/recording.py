"""What is in a recording: its header, and all that was read of it."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from vramtui.core.estimate.estimate import Prediction
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import SCHEMA, ProcessKey, Sample
from vramtui.core.observation.track import Peak
from vramtui.records.recording.jobs import ReadJobs
from vramtui.records.recording.peaks import ReadPeaks
from vramtui.records.recording.predictions import ReadPredictions
from vramtui.records.recording.samples import Samples


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the format's version, seconds since the epoch, seconds between samples, and what recorded it."""

    vramtui_recording: int = SCHEMA
    started_at: float | None = None
    interval: Annotated[float, Meta(gt=0)] | None = None
    versions: dict[str, str] = {}


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A recording as read: its samples by the time they were taken, and what a person should know of the file.

    `jobs` and `predictions` are empty where it was recorded without them.
    """

    header: RecordingHeader
    samples: Sequence[Sample]
    jobs: ReadJobs = msgspec.field(default_factory=ReadJobs)
    predictions: ReadPredictions = msgspec.field(default_factory=ReadPredictions)
    peaks: ReadPeaks = msgspec.field(default_factory=ReadPeaks)
    warnings: tuple[str, ...] = ()

    @property
    def reading(self) -> None:
        """How much of it is read: all."""

    @property
    def times(self) -> Sequence[float]:
        """When each sample was taken, in seconds since the epoch."""
        return self.samples.times if isinstance(self.samples, Samples) else [one.taken_at for one in self.samples]

    def jobs_at(self, when: float) -> tuple[ObservedJob, ...]:
        """What each job had told by `when`, seconds since the epoch."""
        return self.jobs.at(when)

    def predictions_at(self, when: float) -> dict[ProcessKey, Prediction]:
        return self.predictions.at(when)

    def peaks_at(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        return self.peaks.at(when)

    def every_prediction(self) -> tuple[Prediction, ...]:
        return self.predictions.every()
