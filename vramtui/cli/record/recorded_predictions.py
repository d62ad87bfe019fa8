"""What presets predict, for `vramtui record` to write beside its samples; the presets are read on a thread."""

import threading
from typing import TYPE_CHECKING

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.prediction import Prediction, prediction_of
from vramtui.core.observation.matching import Matcher
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.monitor.predictor import Predictor


class Predictions(threading.Thread):
    """Matches processes to presets and predicts; knows none until the presets have been read."""

    def __init__(self) -> None:
        super().__init__(name="read presets", daemon=True)
        self._ready: tuple[Matcher, Predictor] | None = None
        self._made: dict[tuple[str, Device], Prediction | None] = {}

    def run(self) -> None:
        """Read the presets."""
        from vramtui.monitor.predictor import Predictor  # noqa: PLC0415 - estimators take time to load
        from vramtui.presets import PresetLibrary  # noqa: PLC0415 - as above

        self._ready = Matcher(PresetLibrary().all()), Predictor()

    def of(self, sample: Sample) -> dict[ProcessKey, Prediction]:
        """The prediction of each process of `sample` that a preset matches."""
        if self._ready is None:
            return {}
        matcher, predictor = self._ready
        gpus = {gpu.uuid: gpu for gpu in sample.gpus}
        matched = matcher.match(sample, {}).items()
        found = {key: self._predict(preset, device_of(gpus[key.gpu_uuid]), predictor) for key, preset in matched}
        return {key: prediction for key, prediction in found.items() if prediction is not None}

    def _predict(self, preset: PresetFile, device: Device, predictor: "Predictor") -> Prediction | None:
        wanted = (preset.key, device)
        if wanted not in self._made:
            self._made[wanted] = prediction_of(preset, device, predictor.of_preset(preset, device))
        return self._made[wanted]
