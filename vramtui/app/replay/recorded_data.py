"""What a recording says beside its samples: what jobs told and what presets predicted at that time."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.state.view import Panel
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

Traced = Callable[[tuple[Workload, Device]], Estimate | None]


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


class RecordedState:
    """Lets the dashboard's state show jobs and predictions as they were.

    Args:
        state: what is shown; its jobs and its predictor come from the recording from now on.
        recording: what was recorded.
        traced: the estimates of traces, which are of now.
    """

    def __init__(
        self, state: DashboardState, recording: Recorded, traced: Callable[[tuple[Workload, Device]], Estimate | None]
    ) -> None:
        self._state = state
        self._recording = recording
        self._estimator = RecordedData(state.predictor.estimator, recording.every_prediction())
        self._today: Mapping[str, PresetFile] = {}
        state.predictor = Predictor(self._estimator, traced=traced)
        state.jobs = lambda: recording.jobs_at(self._at())

    def learn(self) -> None:
        """More of the recording is read."""
        self._estimator.learn(self._recording.every_prediction())

    def origin(self, panel: Panel | None) -> str:
        """Whether the panel's estimate is `as recorded`, `calibrated now` or `made now`; empty without a panel."""
        if panel is None:
            return ""
        if panel.uncalibrated is not None:
            return "calibrated now"
        return "as recorded" if self._estimator.knows(panel.workload, panel.device) else "made now"

    def take_presets(self, presets: Sequence[PresetFile]) -> None:
        """Today's presets are known: what was predicted otherwise than they say stands beside them."""
        self._today = {found.key: found for found in presets}
        self.expect(self._at())

    def expect(self, when: float) -> None:
        """Give each process the prediction that it had then."""
        if not self._today:
            return
        keys: dict[int, str] = {}
        expected: dict[ProcessKey, str | None] = {}
        for process, prediction in self._recording.predictions_at(when).items():
            if id(prediction) not in keys:
                keys[id(prediction)] = self._preset_of(prediction)
            expected[process] = keys[id(prediction)]
        self._state.recorded = expected

    def remember(self, history: "History", when: float) -> None:
        """Give the processes of the sample of `when`, which `history` has, the peaks that no sample shows."""
        for key, peak in self._recording.peaks_at(when):
            track = history.tracks.get(key)
            if track is not None:
                track.note_peak(peak)

    def _at(self) -> float:
        return self._state.sample.taken_at if self._state.sample is not None else 0.0

    def _preset_of(self, prediction: Prediction) -> str:
        """The key of a preset with that workload: today's if it still has it, or one made of the recording."""
        today = self._today.get(prediction.preset)
        if today is not None and today.preset.workload == prediction.workload:
            return today.key
        key = f"{prediction.preset} (recorded)"
        known = self._state.presets.get(key)
        if known is None or known.preset.workload != prediction.workload:
            self._state.add_preset(_recorded_preset(key, prediction))
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
