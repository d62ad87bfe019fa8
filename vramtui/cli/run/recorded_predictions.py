"""What `vramtui run --record` writes beside its samples: what the job tells, and what its preset predicts."""

from collections.abc import Callable, Mapping, Sequence

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.prediction import Prediction, prediction_of
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import ProcessKey, Sample, process_key
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile

Beside = tuple[Sequence[ObservedJob], Mapping[ProcessKey, Prediction]]


class RunRecorded:
    """The job's own words, and the prediction for each of its processes on each card.

    Args:
        jobs: what its processes have told so far.
        preset: what it runs; None where nobody said so.
    """

    def __init__(self, jobs: Callable[[], Sequence[ObservedJob]], preset: PresetFile | None) -> None:
        self.jobs = jobs
        self._preset = preset
        self._made: dict[Device, Prediction | None] = {}

    def of(self, sample: Sample) -> Beside:
        """What belongs beside `sample`."""
        jobs = self.jobs()
        pids = {job.pid for job in jobs}
        found = {
            process_key(sample.host.name, gpu, process): self._prediction(device_of(gpu))
            for gpu in sample.gpus
            for process in gpu.processes
            if process.pid in pids
        }
        return jobs, {key: made for key, made in found.items() if made is not None}

    def _prediction(self, device: Device) -> Prediction | None:
        if self._preset is None:
            return None
        if device not in self._made:
            from vramtui.monitor.predictor import Predictor  # noqa: PLC0415 - not while the job waits to start

            self._made[device] = prediction_of(self._preset, device, Predictor().of_preset(self._preset, device))
        return self._made[device]
