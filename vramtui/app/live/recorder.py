"""The key `r`: what is watched goes into a file."""

from vramtui.app.context import AppContext
from vramtui.app.feature import Feature
from vramtui.app.state.view import RecordingStatus
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.prediction import Prediction, prediction_of
from vramtui.core.observation.history import Peak
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.recorder import RecordedTick, RecorderThread, RecordingFactory, RecordingResult

LEAVING = 1.0  # seconds that ending the file may take while the dashboard ends


class RecordingFeature(Feature):
    """Records what is watched, between two presses of the key.

    Args:
        shared: the dashboard's own parts.
        factory: begins recordings; None where nothing can be recorded.

    Attributes:
        last_words: what is written on the terminal after the dashboard has left it.
    """

    def __init__(self, shared: AppContext, factory: RecordingFactory | None) -> None:
        self._shared = shared
        self.factory = factory
        self._thread: RecorderThread | None = None
        self._predicted: dict[tuple[str, Device], tuple[PresetFile, Prediction | None]] = {}
        self.last_words = ""

    def toggle(self) -> None:
        """Begin to record what is watched; again: end it."""
        if self.factory is None:
            self._shared.app.notify("Only live data can be recorded.", markup=False)
        elif self._thread is not None:
            self._thread.finish()
            self._thread = None
        else:
            self._thread = RecorderThread(
                self.factory,
                self._shared.interval,
                lambda thread, result: self._shared.app.call_later(self._ended, thread, result),
            )
            self._predicted = {}
            self._thread.start()
            if self._shared.state.sample is not None:
                self.on_sample(self._shared.state.sample)
        self._shared.redraw.now()

    def on_sample(self, sample: Sample) -> None:
        """Record the sample."""
        if self._thread is not None:
            jobs = self._shared.state.jobs()
            self._thread.put(RecordedTick(sample, jobs, self._predictions(sample), self._peaks(sample)))

    def status(self) -> RecordingStatus | None:
        """How long it has been recording; None while it does not."""
        thread, sample = self._thread, self._shared.state.sample
        if thread is None or sample is None:
            return None
        passed = max(0.0, sample.taken_at - (sample.taken_at if thread.began is None else thread.began))
        return RecordingStatus(passed, thread.dropped)

    def close(self) -> None:
        """End the file as well, if it does not take long."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.finish()
            thread.join(LEAVING)
            if thread.where:
                cut = " (not ended: the disk does not answer)" if thread.is_alive() else ""
                self.last_words = f"vramtui: recorded in {thread.where}{cut}\n"

    def _ended(self, thread: RecorderThread, result: RecordingResult) -> None:
        """Say where it is, and what is not in it."""
        if self._thread is thread:
            self._thread = None
        notify = self._shared.app.notify
        if result.problem:
            written = f" What was written so far is in {result.where}." if result.samples else ""
            notify(f"{result.problem}.{written}", title="Recording ended", severity="error", markup=False)
        elif result.samples:
            lost = f" · {result.dropped} dropped: the disk was too slow" if result.dropped else ""
            words = f"{result.where}\n{result.samples} samples{lost}"
            notify(words, title="Recording written", timeout=8, markup=False)
        self._shared.redraw.now()

    def _peaks(self, sample: Sample) -> dict[ProcessKey, Peak]:
        here = (self._shared.state.history.here(sample.host.name, gpu.uuid).values() for gpu in sample.gpus)
        return {track.key: track.peak for tracks in here for track in tracks if track.peak is not None}

    def _predictions(self, sample: Sample) -> dict[ProcessKey, Prediction]:
        """By the presets as their files have them: what is tried out in the panel is not what runs."""
        devices = {gpu.uuid: device_of(gpu) for gpu in sample.gpus}
        matched = self._shared.state.matched().items()
        found = {
            key: self._prediction(preset, devices[key.gpu_uuid]) for key, preset in matched if key.gpu_uuid in devices
        }
        return {key: prediction for key, prediction in found.items() if prediction is not None}

    def _prediction(self, preset: PresetFile, device: Device) -> Prediction | None:
        known = self._predicted.get((preset.key, device))
        if known is not None and known[0] is preset:
            return known[1]
        made = prediction_of(preset, device, self._shared.state.plain_estimate(preset, device))
        self._predicted[preset.key, device] = preset, made
        return made
