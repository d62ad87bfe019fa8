"""Several hosts in one dashboard: the host that is watched, and the Fleet screen."""

from typing import TYPE_CHECKING

from vramtui.app.context import AppContext, Feature
from vramtui.app.fleet.model import FleetModel
from vramtui.app.keys import FIRST
from vramtui.app.messages import FeedStatus
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.fleet import CONNECTING, Fleet

if TYPE_CHECKING:
    from vramtui.app.fleet.model import FleetView
    from vramtui.app.ui.view_screen import ViewScreen


class FleetController(Feature):
    """Gives each host's samples to its own session; those of the current host go through the dashboard.

    Args:
        shared: the dashboard's shared parts.
        fleet: all hosts.
        feed: the status of the current host.
    """

    __slots__ = ("_feed", "_fleet", "_shared", "model")

    def __init__(self, shared: AppContext, fleet: Fleet, feed: FeedStatus) -> None:
        self.model = FleetModel()
        self._shared, self._fleet, self._feed = shared, fleet, feed

    def screen(self) -> "ViewScreen":
        from vramtui.app.fleet.screen import FleetScreen

        return FleetScreen(self._shared, self)

    def view(self) -> "FleetView":
        return self.model.view(self._fleet.summaries(), self._fleet.current)

    @property
    def down(self) -> tuple[str, ...]:
        """The hosts that do not answer; every screen names them."""
        return tuple(one.name for one in self._fleet.summaries() if not one.is_up and one.failure != CONNECTING)

    def is_of_another(self, sample: Sample) -> bool:
        """Return whether a sample is of a host that is not the current one any more; no session takes it."""
        return not self._fleet.is_current(sample)

    def on_sample(self, sample: Sample) -> None:
        del sample
        self._fleet.note_sample()

    def take_presets(self, presets: tuple[PresetFile, ...]) -> None:
        """Match the other hosts' processes too."""
        self._fleet.take_presets(presets)

    def finish_runs(self, patience: float) -> None:
        """Record the end of the other hosts' runs, in at most `patience` seconds."""
        self._fleet.finish_runs(patience)

    def watch_chosen(self) -> None:
        """Watch the host of the selected row, or open or close the selected job."""
        if self.model.by_job:
            rank = self.model.jobs.toggle()
            name = None if rank is None else rank.host
        else:
            row = self.model.selected
            name = None if row is None else row.host.name
        if name is None:
            self._shared.redraw.now()
            return
        if name != self._fleet.current:
            self._shared.state.watch(self._fleet.switch(name))
            self._feed.begin_again(name)
        self._shared.screens.show(FIRST)
        self._shared.redraw.now()

    def close(self) -> None:
        self._fleet.close()
