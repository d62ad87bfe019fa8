"""A close look at the chosen process and at those that run a preset."""

from heapq import nlargest

from vramtui.app import messages
from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.app.state import View
from vramtui.core.observation.readings import ProcessKey
from vramtui.core.observation.source import FastSource
from vramtui.monitor.fast_sampler import MOST, FastSampler


class FastSampling(DashboardBase):
    """Has them looked at between samples, where the source can do that at little cost."""

    _sampler: FastSampler | None = None

    def start_reading(self) -> None:
        """Make ready; the first look is taken when there is something to look at."""
        super().start_reading()
        if isinstance(self._source, FastSource):
            self._sampler = FastSampler(self._source)

    def stop_reading(self) -> None:
        """Stop the thread without waiting for it."""
        super().stop_reading()
        if self._sampler is not None:
            self._sampler.stop()

    def on_sample_taken(self, message: messages.SampleTaken) -> None:
        """What was seen since the sample before goes into the history first."""
        if self._sampler is not None:
            self.desk.history.add_looks(self._sampler.taken(message.sample.taken_at), message.sample)

    def on_source_stuck(self, message: messages.SourceStuck) -> None:
        """Leave a driver alone that does not answer."""
        del message
        if self._sampler is not None:
            self._sampler.aim(())

    def complete(self, view: View, place: str) -> View:
        """Look at what is shown from now on."""
        if self._sampler is not None and not self._stuck:
            self._sampler.aim(self._worth_it(view))
            if not self._sampler.is_alive():
                self._sampler.start()
        return super().complete(view, place)

    def _worth_it(self, view: View) -> set[ProcessKey]:
        """The chosen one, and of those that run a preset the ones that hold most."""
        tracks = self.desk.history.tracks
        running = [(tracks[key].last_used or 0, key) for key in self.desk.matched() if key in tracks]
        wanted = {key for _, key in nlargest(MOST, running, key=_used)}
        if view.chosen is not None and view.chosen.kind == "process" and isinstance(view.chosen.id, ProcessKey):
            wanted.add(view.chosen.id)
        return wanted


def _used(running: tuple[int, ProcessKey]) -> int:
    return running[0]
