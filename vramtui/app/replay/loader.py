"""Playing a recording of which more is read from moment to moment."""

import gc
import time

from vramtui.app.replay.position import NotThere, PlaybackPosition
from vramtui.app.replay.recorded_data import Recorded, RecordedPredictionsControl
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable

FREEZE_EVERY = 2.0  # seconds


class ReplayLoader(RecordedPredictionsControl):
    """A place that is not read yet is gone to as soon as it is; what is wrong further on is said when it is met."""

    playback: PlaybackPosition | None = None
    reading: float | None = None  # how much of the file is read; None when there is no more to come
    _sought = ""  # a place that a person typed and that is not read yet
    _warned = 0
    _next_freeze = 0.0

    def recall(self, recorded: Recorded) -> None:
        """What is known to be wrong with this recording by now is said elsewhere."""
        super().recall(recorded)
        self._warned = len(recorded.warnings)

    def read_on(self) -> bool:
        """Take what was read since the last time; whether that can be anything."""
        if self._recorded is None:
            return False
        was, self.reading = self.reading, self._recorded.reading
        if was is None:
            return False
        self.recall_more()
        if time.monotonic() > self._next_freeze:
            # What was read stays: going through millions of it in search of garbage takes seconds.
            self._next_freeze = time.monotonic() + FREEZE_EVERY
            gc.freeze()
        warnings = self._recorded.warnings
        for warning in warnings[self._warned :]:
            self.notify(printable(warning), title="Recording", severity="warning", markup=False)
        self._warned = len(warnings)
        sought, self._sought = self._sought, ""
        problem = self.seek(sought) if sought else ""
        if problem:
            self.notify(problem, severity="warning", markup=False)
        return True

    def seek(self, text: str) -> str:
        """Go to what a person typed; returns why that cannot be, or nothing."""
        if self.playback is None:
            return "No recording is loaded."
        if self.reading is not None and text.strip().endswith("%"):
            self._sought = text  # of what is not read yet nobody knows the half
            return ""
        self._sought = ""
        try:
            self.playback.seek(self.playback.place(text))
        except NotThere as error:
            if self.reading is None:
                return str(error)
            self._sought = text
        except UserError as error:
            return str(error)
        self.moved()
        return ""

    def moved(self) -> None:
        """The playing is somewhere else."""
