"""Recording what is watched, on a thread of its own: a disk may be slow, full or gone, and the screen does not wait."""

import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from textual.message import Message

from vramtui.app.messages import SampleTaken
from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.app.state import RecordingStatus, View
from vramtui.app.ui.background import Post
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.prediction import Prediction, prediction_of
from vramtui.core.observation.history import Peak
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob

MOST_WAITING = 120  # samples that may wait for the disk
LEAVING = 1.0  # seconds that ending the file may take while the dashboard ends


class RecordingSink(Protocol):
    """A recording that is being written. It is used from one thread only, and may take its time."""

    @property
    def where(self) -> str:
        """The file."""
        ...

    def write(
        self,
        sample: Sample,
        jobs: "Sequence[ObservedJob]",
        predictions: Mapping[ProcessKey, Prediction],
        peaks: Mapping[ProcessKey, Peak],
    ) -> None:
        """Add a sample, what jobs told, predictions, and lifetime peaks.

        Raises:
            UserError: it cannot be written.
        """
        ...

    def close(self) -> None:
        """End the file.

        Raises:
            UserError: it cannot be written.
        """
        ...


class RecordingFactory(Protocol):
    """Begins recordings."""

    def __call__(self, first: Sample, interval: float, /) -> RecordingSink:
        """A new recording that begins at the time of `first`; `interval` in seconds.

        Raises:
            UserError: there can be none.
        """
        ...


@dataclass
class RecordingEnded(Message):
    """A recording is over: `where` it is, how many samples are in it, how many were dropped, and what went wrong."""

    tape: "RecorderThread"
    where: str
    samples: int
    dropped: int
    problem: str = ""


class RecordedTick(NamedTuple):
    """What is recorded of one moment."""

    sample: Sample
    jobs: "Sequence[ObservedJob]"
    predictions: Mapping[ProcessKey, Prediction]
    peaks: Mapping[ProcessKey, Peak]


class RecorderThread(threading.Thread):
    """Writes what it is given, one after another, and posts TapeEnded when it is over.

    Args:
        recorder: begins the recording, on this thread.
        interval: seconds between samples.
        post: takes the message; must be safe to call from any thread.
    """

    def __init__(self, recorder: RecordingFactory, interval: float, post: Post) -> None:
        super().__init__(name="record", daemon=True)
        self._recorder = recorder
        self._interval = interval
        self._post = post
        self._waiting: queue.Queue[RecordedTick | None] = queue.Queue(MOST_WAITING + 1)
        self.began: float | None = None
        self.dropped = 0
        self.written = 0
        self.where = ""

    def put(self, tick: RecordedTick) -> None:
        """Record this too; it is dropped, and counted, where the disk does not keep up. Never waits."""
        if self.began is None:
            self.began = tick.sample.taken_at
        # One place is kept for the word that it is over.
        if self._waiting.qsize() >= MOST_WAITING:
            self.dropped += 1
        else:
            self._waiting.put_nowait(tick)

    def finish(self) -> None:
        """End the recording after what was put; returns at once."""
        self._waiting.put_nowait(None)

    def run(self) -> None:
        """Write until told to finish, or until it cannot be written."""
        problem = ""
        tape: RecordingSink | None = None
        try:
            while (tick := self._waiting.get()) is not None:
                if tape is None:
                    tape = self._recorder(tick.sample, self._interval)
                    self.where = tape.where
                tape.write(*tick)
                self.written += 1
        except (UserError, OSError) as error:
            problem = str(error)
        if tape is not None:
            try:
                tape.close()
            except (UserError, OSError) as error:
                problem = problem or str(error)
        self._post(RecordingEnded(self, self.where, self.written, self.dropped, problem))


class RecordingControl(DashboardBase):
    """What `r` does. Without a `recorder` there is nothing that could record."""

    recorder: RecordingFactory | None = None
    last_words = ""
    _tape: RecorderThread | None = None

    def action_record(self) -> None:
        """Begin to record what is watched; again: end it."""
        if self.recorder is None:
            self.notify("Only what is watched now can be recorded.", markup=False)
        elif self._tape is not None:
            self._tape.finish()
            self._tape = None
        else:
            self._tape = RecorderThread(self.recorder, self._interval, self.post_message)
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

    def on_tape_ended(self, message: RecordingEnded) -> None:
        """Say where it is, and what is not in it."""
        if self._tape is message.tape:
            self._tape = None
        if message.problem:
            kept = f" What was written before is in {message.where}." if message.samples else ""
            self.notify(f"{message.problem}.{kept}", title="Recording ended", severity="error", markup=False)
        elif message.samples:
            lost = f" · {message.dropped} dropped: the disk did not keep up" if message.dropped else ""
            words = f"{message.where}\n{message.samples} samples{lost}"
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
