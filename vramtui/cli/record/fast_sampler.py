"""Close looks where there is no dashboard: ten a second at jobs that are known, for `vramtui record` and `run`."""

from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from typing import Literal

from vramtui.core.base.errors import UserError
from vramtui.core.observation.history import History, Peak
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Process, ProcessKey, Sample, process_key
from vramtui.core.observation.source import FastSource, Source
from vramtui.monitor.fast_sampler import MOST, FastSampler

Wanted = Literal["auto", "none"] | frozenset[int]


def wanted(said: str) -> Wanted:
    """What `--close` says: `auto`, `none` or pids.

    Raises:
        UserError: it is none of those.
    """
    words: dict[str, Literal["auto", "none"]] = {"auto": "auto", "none": "none"}
    if said in words:
        return words[said]
    pids = [part.strip() for part in said.split(",")]
    if not all(pid.isascii() and pid.isdigit() and len(pid) < 10 for pid in pids):
        raise UserError(f"--close takes auto, none, or pids with commas between them; not {said!r}")
    return frozenset(map(int, pids))


class FastTargets:
    """Has processes looked at between samples, where the source can do that, and knows every lifetime peak."""

    def __init__(self, source: Source, wanted: Wanted) -> None:
        self._wanted = wanted
        self._history = History()
        self._sampler = FastSampler(source) if wanted != "none" and isinstance(source, FastSource) else None

    @property
    def able(self) -> bool:
        """Whether there are close looks at all."""
        return self._sampler is not None

    def take(
        self, sample: Sample, jobs: Sequence[ObservedJob], predicted: Collection[ProcessKey]
    ) -> Mapping[ProcessKey, Peak]:
        """The peaks at `sample` with what was seen since the one before; from here on look at what is in this one."""
        if self._sampler is not None:
            self._history.add_looks(self._sampler.taken(sample.taken_at), sample)
        self._history.add(sample)
        if self._sampler is not None:
            self._sampler.aim(self._aims(sample, {job.pid for job in jobs}, predicted))
            if not self._sampler.is_alive():
                self._sampler.start()
        return self._peaks(sample)

    def take_rest(self, last: Sample) -> Mapping[ProcessKey, Peak]:
        """The peaks with what was seen since `last`, after which no sample comes any more."""
        if self._sampler is not None:
            self._history.add_looks(self._sampler.taken(float("inf")), last)
        return self._peaks(last)

    def _peaks(self, sample: Sample) -> Mapping[ProcessKey, Peak]:
        here = (self._history.here(sample.host.name, gpu.uuid).values() for gpu in sample.gpus)
        return {track.key: track.peak for tracks in here for track in tracks if track.peak is not None}

    def rest(self) -> None:
        """Leave a driver alone that does not answer."""
        if self._sampler is not None:
            self._sampler.aim(())

    def close(self) -> None:
        """Look no more."""
        if self._sampler is not None:
            self._sampler.stop()

    def _aims(self, sample: Sample, telling: set[int], predicted: Collection[ProcessKey]) -> list[ProcessKey]:
        def chosen(key: ProcessKey) -> bool:
            if isinstance(self._wanted, frozenset):
                return key.pid in self._wanted
            return key.pid in telling or key in predicted

        keyed = ((process_key(sample.host.name, gpu, row), row) for gpu in sample.gpus for row in gpu.processes)
        return [key for key, _ in nlargest(MOST, ((key, row) for key, row in keyed if chosen(key)), key=_used)]


def _used(keyed: tuple[ProcessKey, Process]) -> int:
    return keyed[1].used_memory or 0
