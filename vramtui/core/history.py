"""Every process ever seen: its memory over time and its lifetime peak, kept after it is gone."""

from array import array
from collections.abc import Iterator, Mapping

import msgspec

from vramtui.core.readings import Gpu, Process, ProcessKey, Sample, process_key

SERIES_LIMIT = 3600
SERIES_LEAST = 120
POINTS = 1 << 20
KEEP_EXITED = 4096


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The most a process was seen to hold, in bytes, and when. `how`: `sampled`, `accounting` or `probe`."""

    bytes: int
    at: float
    how: str = "sampled"


class Track:
    """One process's memory over time. Points are kept only where the value changes; when they are too many, every
    two neighbours become the larger of them, so a peak is never lost.

    Attributes:
        process: its latest reading.
        gone_at: when it was first missed on a device that answered; None while it is there.
    """

    __slots__ = ("first_seen", "gone_at", "key", "last_seen", "last_used", "peak", "process", "times", "values")

    def __init__(self, key: ProcessKey, process: Process, at: float) -> None:
        self.key = key
        self.process = process
        self.times = array("d")
        self.values = array("q")
        self.first_seen = at
        self.last_seen = at
        self.last_used: int | None = None
        self.gone_at: float | None = None
        self.peak: Peak | None = None

    def add(self, at: float, used: int | None, limit: int = SERIES_LIMIT) -> None:
        """Note that the process held `used` bytes (None: not known) at time `at`; keep at most `limit` points."""
        self.last_seen = at
        self.gone_at = None
        if used is None or used == self.last_used:
            return
        self.last_used = used
        if self.peak is None or used > self.peak.bytes:
            self.peak = Peak(bytes=used, at=at)
        self.times.append(at)
        self.values.append(used)
        if len(self.values) > limit:
            self._thin()

    def note_peak(self, peak: Peak) -> None:
        """Take a peak learnt in another way. An equal one counts as better known; a smaller one is out of date."""
        if self.peak is None or peak.bytes > self.peak.bytes:
            self.peak = peak
        elif peak.bytes == self.peak.bytes and self.peak.how == "sampled":
            self.peak = Peak(bytes=peak.bytes, at=self.peak.at, how=peak.how)

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
    """All tracks by process. The one value in the core that changes: it belongs to whoever feeds it.

    A sample costs one look-up by pid for each process: keys are made for new processes only. The more processes,
    the fewer points each may keep, so that thousands of them for a day still take some tens of megabytes.
    """

    def __init__(self) -> None:
        self._tracks: dict[ProcessKey, Track] = {}
        self._here: dict[tuple[str, str], dict[int, Track]] = {}
        self._gone: dict[ProcessKey, Track] = {}

    @property
    def tracks(self) -> Mapping[ProcessKey, Track]:
        """Every process seen, also those that have exited."""
        return self._tracks

    def here(self, host: str, gpu_uuid: str) -> Mapping[int, Track]:
        """The tracks of the processes on one device, by pid."""
        return self._here.get((host, gpu_uuid), {})

    def exited(self, since: float) -> Iterator[Track]:
        """The processes that have gone at or after `since`, the latest first."""
        for track in reversed(self._gone.values()):
            if track.gone_at is None or track.gone_at < since:
                return
            yield track

    def add(self, sample: Sample) -> None:
        """Take one sample. A process that is no longer listed on a device that answered has exited; on a device
        that did not answer nothing is concluded.
        """
        limit = min(SERIES_LIMIT, max(SERIES_LEAST, POINTS // (len(self._tracks) + 1)))
        for gpu in sample.gpus:
            if gpu.state == "ok" and "processes" not in gpu.absent:
                self._add_gpu(sample, gpu, limit)
        self._forget()

    def _add_gpu(self, sample: Sample, gpu: Gpu, limit: int) -> None:
        here = self._here.setdefault((sample.host.name, gpu.uuid), {})
        at = sample.taken_at
        listed: set[int] = set()
        for process in gpu.processes:
            pid = process.pid
            listed.add(pid)
            track = here.get(pid)
            if track is None or track.key.started_at != process.started_at:
                track = self._arrive(sample, gpu, process, here)
            track.process = process
            if process.peak_memory is not None:
                track.note_peak(Peak(bytes=process.peak_memory, at=at, how="accounting"))
            if process.used_memory == track.last_used:
                track.last_seen = at
            else:
                track.add(at, process.used_memory, limit)
        if len(here) > len(listed):
            for pid in here.keys() - listed:
                track = here.pop(pid)
                if pid in gpu.final_peaks:
                    track.note_peak(Peak(bytes=gpu.final_peaks[pid], at=at, how="accounting"))
                self._leave(track, at)

    def _arrive(self, sample: Sample, gpu: Gpu, process: Process, here: dict[int, Track]) -> Track:
        former = here.get(process.pid)
        if former is not None:
            self._leave(former, sample.taken_at)
        key = process_key(sample.host.name, gpu, process)
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = Track(key, process, sample.taken_at)
        track.gone_at = None
        self._gone.pop(key, None)
        here[process.pid] = track
        return track

    def _leave(self, track: Track, at: float) -> None:
        track.gone_at = at
        self._gone[track.key] = track

    def _forget(self) -> None:
        while len(self._gone) > KEEP_EXITED:
            key = next(iter(self._gone))
            del self._gone[key]
            del self._tracks[key]
