"""The jobs that are watched, handed to whoever writes the history of runs."""

from typing import TYPE_CHECKING

from vramtui.app.context import AppContext
from vramtui.app.feature import Feature
from vramtui.core.observation.readings import Sample
from vramtui.monitor.run_writer import RunWriter

if TYPE_CHECKING:
    from vramtui.core.runs.run_tracker import RunTracker

LEAVING = 1.0  # seconds that the last words may take while the dashboard ends


class RunWriterFeature(Feature):
    """Keeps the jobs that run a preset. Without a `writer` (in the demo, in a replay) nothing is kept."""

    def __init__(self, shared: AppContext, writer: RunWriter | None) -> None:
        self._state = shared.state
        self.writer = writer
        self._tracker: RunTracker | None = None

    @property
    def problem(self) -> str:
        """What stands in the way of keeping them."""
        return self.writer.problem if self.writer is not None else ""

    def on_sample(self, sample: Sample) -> None:
        """Keep what is due."""
        if self.writer is None:
            return
        if self._tracker is None:
            from vramtui.core.runs.run_tracker import RunTracker  # noqa: PLC0415 - not needed for the first paint

            self._tracker = RunTracker(self._state.plain_estimate, self._state.reporting_job)
        due = self._tracker.update(sample, self._state.history, self._state.matched())
        if due:
            self.writer.keep(due)

    def close(self) -> None:
        """Write every job that still runs a last time."""
        if self.writer is not None and self._tracker is not None:
            self.writer.finish(self._tracker.rest(self._state.history), LEAVING)
