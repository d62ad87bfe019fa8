"""The key `r`: what is watched goes into a file."""

from vramtui.app.context import AppContext
from vramtui.app.feature import Feature
from vramtui.app.state.view import RecordingStatus
from vramtui.core.observation.readings import Sample
from vramtui.monitor.recorder import RecorderThread, RecordingFactory, RecordingResult

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
            self._thread.start()
            if self._shared.state.sample is not None:
                self.on_sample(self._shared.state.sample)
        self._shared.redraw.now()

    def on_sample(self, sample: Sample) -> None:
        """Record the sample."""
        del sample
        if self._thread is not None:
            self._thread.put(self._shared.state.session.recorded_tick())

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
