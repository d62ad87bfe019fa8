"""Of which watched jobs there is but a guess: what is assumed could move the estimate far, or they refute it."""

from collections.abc import Mapping

from vramtui.core.estimate.assumptions import Range
from vramtui.core.estimate.devices import Device
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.monitor.predictor import Predictor


class Guesses:
    """Tells guesses from predictions. Jobs of which nothing is assumed cost nothing.

    Args:
        predictor: estimates the ends of what a job may need.
    """

    __slots__ = ("_predictor", "_refuted")

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._refuted: set[tuple[str, Workload, Device]] = set()

    def range_of(self, preset_file: PresetFile, device: Device) -> Range | None:
        """What a matched job may need, where that is too wide to be a prediction or refuted; None where it is one."""
        span = self._predictor.range_of(preset_file, device)
        if span is None or (
            span.is_prediction and (preset_file.key, preset_file.preset.workload, device) not in self._refuted
        ):
            return None
        return span

    def may_alert(self, preset_file: PresetFile, device: Device) -> bool:
        """Whether a job that holds more than is predicted holds more than what is assumed of it can explain."""
        span = self._predictor.range_of(preset_file, device)
        return span is None or span.may_alert

    def without(
        self, sample: Sample | None, matched: Mapping[ProcessKey, PresetFile]
    ) -> Mapping[ProcessKey, PresetFile]:
        """`matched` without the processes of `sample` of which there is but a guess."""
        guessed = {key for key, device in _assumed(sample, matched) if self.range_of(matched[key], device) is not None}
        return {key: preset_file for key, preset_file in matched.items() if key not in guessed} if guessed else matched

    def refute(self, sample: Sample, matched: Mapping[ProcessKey, PresetFile], history: History) -> None:
        """Note the guesses that processes of `sample` hold more than, of whose peaks `history` knows."""
        for key, device in _assumed(sample, matched):
            preset_file, track = matched[key], history.tracks.get(key)
            span = self._predictor.range_of(preset_file, device)
            peak = None if track is None else track.peak
            if span is not None and peak is not None and span.is_refuted_by(peak.bytes):
                self._refuted.add((preset_file.key, preset_file.preset.workload, device))


def _assumed(sample: Sample | None, matched: Mapping[ProcessKey, PresetFile]) -> list[tuple[ProcessKey, Device]]:
    """The processes of whose settings something is assumed, each with its card."""
    keys = [key for key, preset_file in matched.items() if preset_file.assumed]
    if not keys or sample is None:
        return []
    devices = {gpu.uuid: device_of(gpu) for gpu in sample.gpus}
    return [(key, devices[key.gpu_uuid]) for key in keys if key.gpu_uuid in devices]
