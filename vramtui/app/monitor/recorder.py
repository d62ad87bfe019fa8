"""The key `r`: what is watched goes into a file."""

from dataclasses import dataclass

import msgspec
from textual.message import Message

from vramtui.app.messages import SampleTaken
from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.app.state import RecordingStatus, View
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.prediction import Prediction, prediction_of
from vramtui.core.observation.history import Peak
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.recorder import RecordedTick, RecorderThread, RecordingFactory, RecordingResult

LEAVING = 1.0  # seconds that ending the file may take while the dashboard ends


@dataclass
class RecordingEnded(Message):
    """A recording is over; `thread` is the one that wrote it."""

    thread: RecorderThread
    result: RecordingResult


class RecordingControl(DashboardBase):
    """What `r` does. Without a `recorder` there is nothing that could record."""

    recorder: RecordingFactory | None = None
    last_words = ""
    _tape: RecorderThread | None = None

    def action_record(self) -> None:
        """Begin to record what is watched; again: end it."""
        if self.recorder is None:
            self.notify("Only live data can be recorded.", markup=False)
        elif self._tape is not None:
            self._tape.finish()
            self._tape = None
        else:
            self._tape = RecorderThread(
                self.recorder,
                self._interval,
                lambda thread, result: self.post_message(RecordingEnded(thread, result)),
            )
            self._taped: dict[tuple[str, Device], tuple[PresetFile, Prediction | None]] = {}
            self._tape.start()
            if self.desk.sample is not None:
                self._put(self.desk.sample)
        self.draw()

    def on_sample_taken(self, message: SampleTaken) -> None:
        """Record the sample, after the desk has taken it as well."""
        if self._tape is not None:
            self.call_later(self._put, message.sample)

    def _put(self, sample: Sample) -> None:
        if self._tape is not None:
            self._tape.put(RecordedTick(sample, self.desk.jobs(), self._predictions(sample), self._peaks(sample)))

    def _peaks(self, sample: Sample) -> dict[ProcessKey, Peak]:
        here = (self.desk.history.here(sample.host.name, gpu.uuid).values() for gpu in sample.gpus)
        return {track.key: track.peak for tracks in here for track in tracks if track.peak is not None}

    def _predictions(self, sample: Sample) -> dict[ProcessKey, Prediction]:
        """By the presets as their files have them: what is tried out in the panel is not what runs."""
        devices = {gpu.uuid: device_of(gpu) for gpu in sample.gpus}
        matched = self.desk.matched().items()
        found = {
            key: self._prediction(preset, devices[key.gpu_uuid]) for key, preset in matched if key.gpu_uuid in devices
        }
        return {key: prediction for key, prediction in found.items() if prediction is not None}

    def _prediction(self, preset: PresetFile, device: Device) -> Prediction | None:
        known = self._taped.get((preset.key, device))
        if known is not None and known[0] is preset:
            return known[1]
        made = prediction_of(preset, device, self.desk.predictor.plain(preset.preset.workload, device).estimate)
        self._taped[preset.key, device] = preset, made
        return made

    def on_recording_ended(self, message: RecordingEnded) -> None:
        """Say where it is, and what is not in it."""
        result = message.result
        if self._tape is message.thread:
            self._tape = None
        if result.problem:
            kept = f" What was written so far is in {result.where}." if result.samples else ""
            self.notify(f"{result.problem}.{kept}", title="Recording ended", severity="error", markup=False)
        elif result.samples:
            lost = f" · {result.dropped} dropped: the disk was too slow" if result.dropped else ""
            words = f"{result.where}\n{result.samples} samples{lost}"
            self.notify(words, title="Recording written", timeout=8, markup=False)
        self.draw()

    def stop_reading(self) -> None:
        """End the file as well, if it does not take long."""
        super().stop_reading()
        tape, self._tape = self._tape, None
        if tape is not None:
            tape.finish()
            tape.join(LEAVING)
            if tape.where:
                cut = " (not ended: the disk does not answer)" if tape.is_alive() else ""
                self.last_words = f"vramtui: recorded in {tape.where}{cut}\n"

    def complete(self, view: View, place: str) -> View:
        """With how long it has been recording."""
        view = super().complete(view, place)
        tape, sample = self._tape, self.desk.sample
        if tape is None or sample is None:
            return view
        passed = max(0.0, sample.taken_at - (sample.taken_at if tape.began is None else tape.began))
        return msgspec.structs.replace(view, taping=RecordingStatus(passed, tape.dropped))
