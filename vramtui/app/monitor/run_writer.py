"""The jobs that are watched, handed to whoever keeps the history of runs."""

from typing import TYPE_CHECKING

import msgspec

from vramtui.app.messages import SampleTaken
from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.app.state import View
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.probes import find_job
from vramtui.monitor.run_writer import RunWriter

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.core.runs.run_tracker import RunTracker

LEAVING = 1.0  # seconds that the last words may take while the dashboard ends


class RunWriting(DashboardBase):
    """Keeps the jobs that run a preset. Without a `keeper` (in the demo, in a replay) nothing is kept."""

    keeper: RunWriter | None = None
    _watched: "RunTracker | None" = None

    def on_sample_taken(self, message: SampleTaken) -> None:
        """Keep what is due, after the desk has taken the sample as well."""
        del message
        if self.keeper is not None:
            self.call_later(self._keep)

    def stop_reading(self) -> None:
        """Write every job that still runs a last time."""
        super().stop_reading()
        if self.keeper is not None and self._watched is not None:
            self.keeper.finish(self._watched.rest(self.desk.history), LEAVING)

    def complete(self, view: View, place: str) -> View:
        """What stands in the way of keeping goes into the problems."""
        view = super().complete(view, place)
        if self.keeper is None or not self.keeper.problem:
            return view
        return msgspec.structs.replace(view, unkept=self.keeper.problem)

    def _keep(self) -> None:
        sample = self.desk.sample
        if self.keeper is None or sample is None:
            return
        if self._watched is None:
            from vramtui.core.runs.run_tracker import RunTracker  # noqa: PLC0415 - not needed for the first paint

            self._watched = RunTracker(self._predicted, self._told)
        due = self._watched.update(sample, self.desk.history, self.desk.matched())
        if due:
            self.keeper.keep(due)

    def _predicted(self, found: PresetFile, device: Device) -> Estimate | None:
        """By the preset as saved, uncalibrated: what is tried out in the panel is not what runs."""
        return self.desk.predictor.plain(found.preset.workload, device).estimate

    def _told(self, pid: int, uuid: str) -> "tuple[ObservedJob, int] | None":
        return find_job(self.desk.jobs, pid, uuid)
