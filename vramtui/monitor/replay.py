"""A recording, fed to a session as if it were watched, and from any place on.

What is played is what was: samples, peaks, reports of jobs and predictions are those of the time that is shown.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Estimator, Prediction
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.track import Peak
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.monitor.replay_position import NotThereError, PlaybackPosition

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.monitor.session import MonitorSession

SLICE = 0.02  # seconds at a time that samples are gone through without a look at keys and screen
QUIET = 120  # samples gone through at once from which alerts on the way are not said any more


class Recorded(Protocol):
    """A recording as the dashboard plays it; times are seconds since the epoch."""

    @property
    def samples(self) -> Sequence[Sample]:
        """What was seen, in the order of its times; at least one."""
        ...

    @property
    def times(self) -> Sequence[float]:
        """When each of them was taken."""
        ...

    @property
    def reading(self) -> float | None:
        """How much of the file is read, from 0 to 1; None when there is no more to come."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What a person should know of the file, as far as it is read."""
        ...

    def jobs_at(self, when: float) -> "Sequence[ObservedJob]":
        """What each job had told by then."""
        ...

    def predictions_at(self, when: float) -> Mapping[ProcessKey, Prediction]:
        """The prediction that each process had then."""
        ...

    def peaks_at(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """The peaks that were noted at the sample of `when` and that no sample shows."""
        ...

    def every_prediction(self) -> Sequence[Prediction]:
        """All that was predicted in it."""
        ...


class RecordedEstimates:
    """Answers as was answered when it was recorded, and asks `estimator` about everything else."""

    __slots__ = ("_estimator", "_recorded", "name")

    def __init__(self, estimator: Estimator, predictions: Sequence[Prediction]) -> None:
        self.name = estimator.name
        self._estimator = estimator
        self._recorded = {(prediction.workload, prediction.device): prediction.estimate for prediction in predictions}

    def learn(self, predictions: Sequence[Prediction]) -> None:
        """More of the recording is read: all that was predicted in it so far."""
        self._recorded.update(
            {(prediction.workload, prediction.device): prediction.estimate for prediction in predictions}
        )

    def knows(self, workload: Workload, device: Device) -> bool:
        """Whether this was predicted in the recording."""
        return (workload, device) in self._recorded

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """The recorded estimate, or the estimator's.

        Raises:
            UserError: as the estimator does.
        """
        recorded = self._recorded.get((workload, device))
        return self._estimator.estimate(workload, device) if recorded is None else recorded


class ReplayFeed:
    """Plays a recording: brings a session to where the playing is, and delivers the sample of that place.

    The samples before it go into the history alone. After a delivery it waits until the sample has arrived, which
    whoever ingests it says with `arrived`.

    Args:
        recording: what is played.
        session: what is fed. From now on its jobs and predictions are those of the recording.
        deliver: takes each sample that is to be ingested and shown.
        clock: seconds, of which only differences matter.

    Attributes:
        playback: where the playing is.
        seeking: how much of the way to a place further off is gone, from 0 to 1; None where it is not on the way.
        reading: how much of the file is read; None when there is no more to come.
    """

    __slots__ = (
        "_aim", "_awaited", "_deliver", "_estimates", "_fed", "_history", "_is_quiet", "_library", "_recording",
        "_session", "_sought", "_warned", "playback", "reading", "seeking",
    )  # fmt: skip

    def __init__(
        self,
        recording: Recorded,
        session: "MonitorSession",
        deliver: Callable[[Sample], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recording = recording
        self._session = session
        self._deliver = deliver
        self.playback = PlaybackPosition(recording.times, clock)
        self.seeking: float | None = None
        self.reading: float | None = None
        self._warned = len(recording.warnings)
        self._library: Mapping[str, PresetFile] = {}
        self._history = session.history
        self._fed = 0  # samples that the history has
        self._aim = 0  # and those that it is to have, on the way to another place
        self._is_quiet = False
        self._awaited: Sample | None = None
        self._sought = ""  # a place that a person typed and that is not read yet
        predictor = session.predictor
        self._estimates = RecordedEstimates(predictor.estimator, recording.every_prediction())
        predictor.answer_by(self._estimates)
        session.jobs = lambda: recording.jobs_at(self._at)
        session.recorded_peaks = recording.peaks_at

    # --- going on ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Deliver the first sample."""
        self._fed = 1
        self._arrive(self._recording.samples[0])

    def advance(self) -> bool:
        """Go on as far as the clock did, and take what was read of the file meanwhile; whether anything may be new."""
        played, more = self.playback.playing, self._read_more()
        self.playback.advance()
        self.follow()
        return played or more

    def follow(self) -> None:
        """Set out for where the playing is, unless it is on the way already."""
        wanted = self.playback.count
        if self.seeking is not None or self._awaited is not None or wanted == self._fed:
            return
        self._is_quiet = wanted < self._fed or wanted - self._fed > QUIET
        if wanted < self._fed:
            self._history, self._fed = History(), 0
        self._aim = wanted
        self.go_on()

    def go_on(self) -> None:
        """Go through samples for a short while, and deliver the last one where it gets there. While `seeking` is not
        None somebody has to call it again.
        """
        samples = self._recording.samples
        until = time.monotonic() + SLICE
        while self._fed < self._aim - 1:
            sample = samples[self._fed]
            self._history.add(sample)
            self._session.note_recorded_peaks(self._history, sample.taken_at)
            self._fed += 1
            if time.monotonic() > until and self._fed < self._aim - 1:
                self.seeking = self._fed / self._aim
                return
        self.seeking = None
        self._fed = self._aim
        self._session.history = self._history
        if self._is_quiet:
            self._session.restart_alerts()
        self._arrive(samples[self._aim - 1])

    def arrived(self, sample: Sample) -> None:
        """The session has `sample`; go on where the playing is somewhere else by now."""
        if sample is self._awaited:
            self._awaited = None
            self.follow()

    @property
    def is_there(self) -> bool:
        """Whether the session is where the playing is."""
        return self.seeking is None and self._awaited is None and self._fed == self.playback.count

    def _arrive(self, sample: Sample) -> None:
        self._awaited = sample
        self._expect(sample.taken_at)
        self._deliver(sample)

    # --- the file ------------------------------------------------------------------------------------------------

    def new_warnings(self) -> Sequence[str]:
        """What is wrong with the part of the file that was read since the last time."""
        warnings = self._recording.warnings
        new, self._warned = warnings[self._warned :], len(warnings)
        return new

    def retry(self) -> str:
        """Go to the place that was typed and not read then; returns why that cannot be, or nothing."""
        return self.seek(self._sought) if self._sought else ""

    def seek(self, text: str) -> str:
        """Go to what a person typed; returns why that cannot be, or nothing. A place that is not read yet is gone to
        when `retry` finds it.
        """
        if self.reading is not None and text.strip().endswith("%"):
            self._sought = text  # of what is not read yet nobody knows the half
            return ""
        self._sought = ""
        try:
            self.playback.seek(self.playback.place(text))
        except NotThereError as error:
            if self.reading is None:
                return str(error)
            self._sought = text
        except UserError as error:
            return str(error)
        self.follow()
        return ""

    def _read_more(self) -> bool:
        was, self.reading = self.reading, self._recording.reading
        if was is None:
            return False
        self._estimates.learn(self._recording.every_prediction())
        return True

    # --- predictions ---------------------------------------------------------------------------------------------

    def knows(self, workload: Workload, device: Device) -> bool:
        """Whether this was predicted in the recording."""
        return self._estimates.knows(workload, device)

    def take_library(self, presets: Sequence[PresetFile]) -> None:
        """Today's presets are known: what was predicted otherwise than they say stands beside them."""
        self._library = {preset_file.key: preset_file for preset_file in presets}
        self._expect(self._at)

    @property
    def _at(self) -> float:
        return self._session.sample.taken_at if self._session.sample is not None else 0.0

    def _expect(self, when: float) -> None:
        """Give each process the prediction that it had then."""
        if not self._library:
            return
        keys: dict[int, str] = {}
        expected: dict[ProcessKey, str | None] = {}
        for process, prediction in self._recording.predictions_at(when).items():
            if id(prediction) not in keys:
                keys[id(prediction)] = self._preset_of(prediction)
            expected[process] = keys[id(prediction)]
        self._session.recorded = expected

    def _preset_of(self, prediction: Prediction) -> str:
        """The key of a preset with that workload: today's if it still has it, or one made of the recording."""
        today = self._library.get(prediction.preset)
        if today is not None and today.preset.workload == prediction.workload:
            return today.key
        key = f"{prediction.preset} (recorded)"
        known = self._session.presets.get(key)
        if known is None or known.preset.workload != prediction.workload:
            self._session.add_preset(_recorded_preset(key, prediction))
        return key


def _recorded_preset(key: str, prediction: Prediction) -> PresetFile:
    workload = prediction.workload
    preset = Preset(
        name=prediction.title,
        notes="As it was when the recording was made.",
        model=workload.model,
        run=workload.run,
        parallel=workload.parallel,
    )
    return PresetFile(key=key, path="", bundled=False, preset=preset)
