"""Every process ever seen: its memory over time and its lifetime peak, kept after it is gone."""

from array import array
from collections.abc import Mapping

import msgspec

from vramtui.core.readings import Gpu, Process, ProcessKey, Sample, process_key

SERIES_LIMIT = 3600
KEEP_EXITED = 4096


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The most a process was seen to hold, in bytes, and when. `how`: `sampled`, `accounting` or `probe`."""

    bytes: int
    at: float
    how: str = "sampled"


class Track:
    """One process's memory over time. Points are kept only where the value changes; when they are too many, every
    two neighbours become the larger of them, so a peak is never lost.
    """

    __slots__ = ("first_seen", "gone_at", "last_seen", "peak", "times", "values")

    def __init__(self, at: float) -> None:
        self.times = array("d")
        self.values = array("q")
        self.first_seen = at
        self.last_seen = at
        self.gone_at: float | None = None
        self.peak: Peak | None = None

    def add(self, at: float, used: int | None) -> None:
        """Note that the process held `used` bytes (None: not known) at time `at`."""
        self.last_seen = at
        self.gone_at = None
        if used is None:
            return
        if self.peak is None or used > self.peak.bytes:
            self.peak = Peak(bytes=used, at=at)
        if self.values and self.values[-1] == used:
            return
        self.times.append(at)
        self.values.append(used)
        if len(self.values) > SERIES_LIMIT:
            self._thin()

    def note_peak(self, peak: Peak) -> None:
        """Take a peak learnt in another way; only a larger one counts."""
        if self.peak is None or peak.bytes > self.peak.bytes:
            self.peak = peak

    def _thin(self) -> None:
        times, values = array("d"), array("q")
        for i in range(0, len(self.values) - 1, 2):
            j = i if self.values[i] >= self.values[i + 1] else i + 1
            times.append(self.times[j])
            values.append(self.values[j])
        if len(self.values) % 2:
            times.append(self.times[-1])
            values.append(self.values[-1])
        self.times, self.values = times, values


class History:
    """All tracks by process. The one value in the core that changes: it belongs to whoever feeds it."""

    def __init__(self) -> None:
        self._tracks: dict[ProcessKey, Track] = {}
        self._alive: set[ProcessKey] = set()

    @property
    def tracks(self) -> Mapping[ProcessKey, Track]:
        """Every process seen, also those that have exited."""
        return self._tracks

    def add(self, sample: Sample) -> None:
        """Take one sample. A process that is no longer listed on a device that answered has exited; on a device
        that did not answer nothing is concluded.
        """
        present: set[ProcessKey] = set()
        answered: set[str] = set()
        for gpu in sample.gpus:
            if gpu.state != "ok" or "processes" in gpu.absent:
                continue
            answered.add(gpu.uuid)
            for process in gpu.processes:
                present.add(self._see(sample, gpu, process))
        gone = {k for k in self._alive - present if k.host == sample.host.name and k.gpu_uuid in answered}
        for key in gone:
            self._tracks[key].gone_at = sample.taken_at
        self._alive = (self._alive - gone) | present
        self._forget()

    def _see(self, sample: Sample, gpu: Gpu, process: Process) -> ProcessKey:
        key = process_key(sample.host.name, gpu, process)
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = Track(sample.taken_at)
        track.add(sample.taken_at, process.used_memory)
        return key

    def _forget(self) -> None:
        exited = len(self._tracks) - len(self._alive)
        if exited <= KEEP_EXITED:
            return
        oldest = sorted((k for k in self._tracks if k not in self._alive), key=lambda k: self._tracks[k].last_seen)
        for key in oldest[: exited - KEEP_EXITED]:
            del self._tracks[key]
