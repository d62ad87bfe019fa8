"""The chosen process and those that run a preset, looked at between samples where that costs little."""

from heapq import nlargest

from vramtui.app.context import AppContext
from vramtui.app.feature import Feature
from vramtui.app.state.view import ProcessRow
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.source import FastSource, Source
from vramtui.monitor.fast_sampler import MOST, FastSampler


class FastSamplerFeature(Feature):
    """Aims the fast sampler, and puts what it saw into the history.

    Attributes:
        sampler: the thread; None where the source cannot be asked that often.
    """

    def __init__(self, shared: AppContext) -> None:
        self._state = shared.state
        self.sampler: FastSampler | None = None

    def begin(self, source: Source) -> None:
        """Make ready; the first look is taken when there is something to look at."""
        if isinstance(source, FastSource):
            self.sampler = FastSampler(source)

    def before(self, sample: Sample) -> None:
        """What was seen since the sample before goes into the history before `sample` does."""
        if self.sampler is not None:
            self._state.history.add_looks(self.sampler.taken(sample.taken_at), sample)

    def rest(self) -> None:
        """Leave a driver alone that does not answer."""
        if self.sampler is not None:
            self.sampler.aim(())

    def follow(self, chosen: ProcessRow | None) -> None:
        """Look at the chosen row's process from now on, and of those that run a preset at the ones that hold most."""
        if self.sampler is None:
            return
        tracks = self._state.history.tracks
        running = [(tracks[key].last_used or 0, key) for key in self._state.matched() if key in tracks]
        wanted = {key for _, key in nlargest(MOST, running, key=_used)}
        if chosen is not None and chosen.kind == "process" and isinstance(chosen.id, ProcessKey):
            wanted.add(chosen.id)
        self.sampler.aim(wanted)
        if not self.sampler.is_alive():
            self.sampler.start()

    def close(self) -> None:
        """Let the thread end without being waited for."""
        if self.sampler is not None:
            self.sampler.stop()


def _used(running: tuple[int, ProcessKey]) -> int:
    return running[0]
