"""A recording of which more is read from moment to moment."""

import gc
import time

from textual.app import App

from vramtui.app.replay.position import NotThere, PlaybackPosition
from vramtui.app.replay.recorded_data import Recorded, RecordedState
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable

FREEZE_EVERY = 2.0  # seconds


class ReplayLoader:
    """A place that is not read yet is gone to as soon as it is; what is wrong further on is said when it is met.

    Args:
        app: says it.
        recording: what is read.
        recorded: what of it the dashboard shows beside samples.
        position: where the playing is.

    Attributes:
        reading: how much of the file is read; None when there is no more to come.
    """

    def __init__(
        self, app: App[None], recording: Recorded, recorded: RecordedState, position: PlaybackPosition
    ) -> None:
        self._app = app
        self._recording = recording
        self._recorded = recorded
        self.position = position
        self.reading: float | None = None
        self._sought = ""  # a place that a person typed and that is not read yet
        # What is known to be wrong with this recording by now is said elsewhere.
        self._warned = len(recording.warnings)
        self._next_freeze = 0.0

    def read_on(self) -> bool:
        """Take what was read since the last time; whether that can be anything."""
        was, self.reading = self.reading, self._recording.reading
        if was is None:
            return False
        self._recorded.learn()
        if time.monotonic() > self._next_freeze:
            # What was read stays: going through millions of it in search of garbage takes seconds.
            self._next_freeze = time.monotonic() + FREEZE_EVERY
            gc.freeze()
        warnings = self._recording.warnings
        for warning in warnings[self._warned :]:
            self._app.notify(printable(warning), title="Recording", severity="warning", markup=False)
        self._warned = len(warnings)
        sought, self._sought = self._sought, ""
        problem = self.seek(sought) if sought else ""
        if problem:
            self._app.notify(problem, severity="warning", markup=False)
        return True

    def seek(self, text: str) -> str:
        """Go to what a person typed; returns why that cannot be, or nothing."""
        if self.reading is not None and text.strip().endswith("%"):
            self._sought = text  # of what is not read yet nobody knows the half
            return ""
        self._sought = ""
        try:
            self.position.seek(self.position.place(text))
        except NotThere as error:
            if self.reading is None:
                return str(error)
            self._sought = text
        except UserError as error:
            return str(error)
        return ""
