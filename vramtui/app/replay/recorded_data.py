"""What a recording says beside its samples: what jobs told and what presets predicted at that time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from vramtui.app import messages
from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.app.state import View
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.estimate.prediction import Prediction
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.monitor.predictor import Predictor

if TYPE_CHECKING:
    from vramtui.core.observation.history import History, Peak
    from vramtui.core.observation.probe_messages import ObservedJob


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

    def peaks_at(self, when: float) -> "Sequence[tuple[ProcessKey, Peak]]":
        """The peaks that were noted at the sample of `when` and that no sample shows."""
        ...

    def every_prediction(self) -> Sequence[Prediction]:
        """All that was predicted in it."""
        ...


class RecordedData:
    """Answers as was answered when it was recorded, and asks `estimator` about everything else."""

    def __init__(self, estimator: Estimator, predictions: Sequence[Prediction]) -> None:
        self.name = estimator.name
        self._estimator = estimator
        self._recorded = {(made.workload, made.device): made.estimate for made in predictions}

    def learn(self, predictions: Sequence[Prediction]) -> None:
        """More of the recording is read: all that was predicted in it so far."""
        self._recorded.update({(made.workload, made.device): made.estimate for made in predictions})

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


class RecordedPredictionsControl(DashboardBase):
    """A dashboard that shows jobs and predictions as they were; without a recording it shows those of now."""

    _recorded: Recorded | None = None
    _as_recorded: RecordedData | None = None
    _library_keys: Mapping[str, PresetFile] = {}

    def recall(self, recorded: Recorded) -> None:
        """From now on, what jobs tell and what is predicted come from this recording."""
        self._recorded = recorded
        self._as_recorded = RecordedData(self.desk.predictor.estimator, recorded.every_prediction())
        self.desk.predictor = Predictor(self._as_recorded, traced=self.traces.estimate)
        self.desk.jobs = lambda: recorded.jobs_at(self._at())

    def recall_more(self) -> None:
        """More of the recording is read."""
        if self._as_recorded is not None and self._recorded is not None:
            self._as_recorded.learn(self._recorded.every_prediction())

    def origin(self, view: View) -> str:
        """Whether the panel's estimate is `as recorded`, `calibrated now` or `made now`; empty without a panel."""
        if view.panel is None or self._as_recorded is None:
            return ""
        if view.panel.uncalibrated is not None:
            return "calibrated now"
        return "as recorded" if self._as_recorded.knows(view.panel.workload, view.panel.device) else "made now"

    def on_presets_read(self, message: messages.PresetsRead) -> None:
        """Today's presets are known: what was predicted otherwise than they say stands beside them."""
        if self._recorded is not None:
            self._library_keys = {found.key: found for found in message.presets}
            self.expect(self._at())

    def expect(self, when: float) -> None:
        """Give each process the prediction that it had then."""
        if self._recorded is None or not self._library_keys:
            return
        keys: dict[int, str] = {}
        expected: dict[ProcessKey, str | None] = {}
        for process, prediction in self._recorded.predictions_at(when).items():
            if id(prediction) not in keys:
                keys[id(prediction)] = self._preset_of(prediction)
            expected[process] = keys[id(prediction)]
        self.desk.recorded = expected

    def remember(self, history: "History", when: float) -> None:
        """Give the processes of the sample of `when`, which `history` has, the peaks that no sample shows."""
        for key, peak in self._recorded.peaks_at(when) if self._recorded is not None else ():
            track = history.tracks.get(key)
            if track is not None:
                track.note_peak(peak)

    def _at(self) -> float:
        return self.desk.sample.taken_at if self.desk.sample is not None else 0.0

    def _preset_of(self, prediction: Prediction) -> str:
        """The key of a preset with that workload: today's if it still has it, or one made of the recording."""
        today = self._library_keys.get(prediction.preset)
        if today is not None and today.preset.workload == prediction.workload:
            return today.key
        key = f"{prediction.preset} (recorded)"
        known = self.desk.presets.get(key)
        if known is None or known.preset.workload != prediction.workload:
            self.desk.add_preset(_recorded_preset(key, prediction))
        return key


def _recorded_preset(key: str, prediction: Prediction) -> PresetFile:
    workload = prediction.workload
    preset = Preset(
        name=prediction.title,
        notes="As it was when recorded.",
        model=workload.model,
        run=workload.run,
        parallel=workload.parallel,
        rule=workload.rule,
    )
    return PresetFile(key=key, path="", bundled=False, preset=preset)
