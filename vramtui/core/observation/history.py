"""Every process ever seen: its memory over time and its lifetime peak, kept after it is gone."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample, process_key

LIMIT = 3600


class Curve:
    """One or several whole numbers over time. Point i holds from `times[i]` until the next one.

    Points are kept only where a value changes; when they are too many, every two neighbours become the one with the
    larger sum.

    Attributes:
        times: seconds since the epoch, rising.
        values: for each of the numbers, its value at each time.
    """

    __slots__ = ("times", "values")

    def __init__(self, count: int = 1) -> None:
        self.times = array("d")
        self.values = tuple(array("q") for _ in range(count))

    def add(self, at: float, point: Sequence[int], limit: int = LIMIT) -> None:
        """Note what holds from `at` on, instead of all that was known of that time and after it."""
        times, values = self.times, self.values
        if times and at <= times[-1]:
            place = bisect_left(times, at)
            del times[place:]
            for series in values:
                del series[place:]
        if times and all(series[-1] == value for series, value in zip(values, point, strict=True)):
            return
        for series, value in zip(values, point, strict=True):
            series.append(value)
        times.append(at)
        if len(times) > limit:
            sums = [sum(point) for point in zip(*values, strict=True)]
            places = [i if sums[i] >= sums[i + 1] else i + 1 for i in range(0, len(sums) - 1, 2)]
            if len(sums) % 2:
                places.append(len(sums) - 1)
            self.times = array("d", [times[i] for i in places])
            self.values = tuple(array("q", [series[i] for i in places]) for series in values)

    def shift(self, seconds: float) -> None:
        self.times = array("d", [at + seconds for at in self.times])


SERIES_LIMIT = 3600
BREAK = 2.5  # seconds without a look after which close looks have ended
# Points of a process that is looked at closely, and the least of another; all processes share POINTS.
SERIES_CLOSE, SERIES_LEAST, POINTS = 1024, 8, 1 << 17
KEEP_EXITED = 4096
# Seconds by which a sample may be older than the one before it. More is a clock that was set back.
SET_BACK = 2.0


class FastSample(msgspec.Struct, frozen=True, gc=False):
    """Memory of one process, in bytes, at a moment between two samples (seconds since the epoch).

    `interval` is how many seconds had passed since the look before.
    """

    key: ProcessKey
    at: float
    used: int
    interval: float


class Peak(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The most a process was seen to hold, in bytes, and when. `how`: `sampled`, `accounting` or `probe`.

    `interval` is how many seconds lay between the looks when a sampled one was seen; None while there was but one.
    What lasts for less can be higher and not be seen.
    """

    bytes: int
    at: float
    how: str = "sampled"
    interval: float | None = None


class Track:
    """One process's memory over time. Points are kept only where the value changes; when they are too many, every
    two neighbours become the larger of them, so a peak is never lost.

    Attributes:
        key: who it is.
        process: its latest reading.
        first_seen: in seconds since the epoch.
        last_seen: when it was there last, in seconds since the epoch.
        gone_at: when it was first missed on a device that answered; None while it is there.
        times: when what it held changed, in seconds since the epoch.
        values: what it held from each of `times` on, in bytes.
        last_used: bytes that it held last; None if it was never known.
        peak: the most it was seen to hold.
        place: GiB by which a list that shows it puts it in order; the list sets it.
        sampled_fast: from when until when the fast sampler looked at it, in seconds since the epoch; None if never.
        fast_interval: seconds between those looks.
    """

    __slots__ = (
        "_points", "fast_interval", "first_seen", "gone_at", "key", "last_seen", "last_used", "peak", "place",
        "process", "sampled_fast",
    )  # fmt: skip

    def __init__(self, key: ProcessKey, process: Process, at: float) -> None:
        self.key = key
        self.process = process
        self.first_seen = self.last_seen = at
        self.gone_at: float | None = None
        self._points = array("d")  # times and bytes in turn: there may be thousands of tracks
        self.last_used: int | None = None
        self.peak: Peak | None = None
        self.place: float | None = None
        self.sampled_fast: tuple[float, float] | None = None
        self.fast_interval: float | None = None

    @property
    def times(self) -> "array[float]":
        return self._points[::2]

    @property
    def values(self) -> "array[int]":
        return array("q", map(int, self._points[1::2]))

    def take(self, process: Process, at: float, limit: int, interval: float | None) -> bool:
        """Note its reading at a time; the rest as `add`. Return whether it says more about what the process is."""
        last, self.process = self.process, process
        if process.peak_memory is not None:
            self.note_peak(Peak(bytes=process.peak_memory, at=at, how="accounting"))
        self.add(at, process.used_memory, limit, interval)
        return process is not last and (
            process.command != last.command
            or process.name != last.name
            or process.user != last.user
            or process.torch != last.torch
            or process.module_loading != last.module_loading
            or process.alloc_conf != last.alloc_conf
        )

    def add(self, at: float, used: int | None, limit: int = SERIES_LIMIT, interval: float | None = None) -> None:
        """Note that the process held `used` bytes (None: not known) at time `at`, `interval` seconds after the look
        before; keep at most `limit` points.
        """
        self.last_seen = at
        if used is None or used == self.last_used:
            return
        self.last_used = used
        peak, points = self.peak, self._points
        if peak is None or used > peak.bytes:
            (size,) = array("q", (used,))  # OverflowError for what no machine has
            self.peak = Peak(bytes=size, at=at, interval=interval)
        if points and at <= points[-2]:  # a clock that is being corrected: what was noted of this time is replaced
            del points[2 * bisect_left(self.times, at) :]
        points += array("d", (at, used))
        if len(points) > 2 * (limit if self.sampled_fast is None else max(limit, SERIES_CLOSE)):
            odd = array("d", points[-2:] if len(points) % 4 else ())
            pairs = (
                points[i : i + 2] if points[i + 1] >= points[i + 3] else points[i + 2 : i + 4]
                for i in range(0, len(points) - 3, 4)
            )
            self._points = array("d", chain.from_iterable(pairs)) + odd

    @property
    def close_since(self) -> float | None:
        """Since when it has been looked at closely until now; None if it is not."""
        if self.sampled_fast is None or self.last_seen - self.sampled_fast[1] > BREAK:
            return None
        return self.sampled_fast[0]

    def grown(self, since: float) -> int:
        """How many bytes it grew beyond what it held at that time, in seconds since the epoch."""
        place, points = 2 * bisect_right(self.times, since), self._points
        later = points[place + 1 :: 2]
        return max(0, int(max(later) - (points[place - 1] if place else 0))) if later else 0

    def look(self, look: FastSample, limit: int = SERIES_LIMIT) -> None:
        """Note a close look. One that is older than what is known already is left out."""
        if look.at < self.last_seen:
            return
        if self.sampled_fast is None or look.at - self.sampled_fast[1] > BREAK:
            self.sampled_fast = (look.at, look.at)
        else:
            self.sampled_fast = (self.sampled_fast[0], look.at)
        self.fast_interval = round(look.interval, 1)
        if self.gone_at is None:
            self.add(look.at, look.used, limit, self.fast_interval)

    def note_peak(self, peak: Peak) -> None:
        """Take a peak learned in another way. An equal one counts as better known; a smaller one is out of date."""
        known = self.peak
        if known is None or peak.bytes > known.bytes:
            self.peak = peak
        elif peak.bytes == known.bytes and known.how == "sampled":
            self.peak = Peak(bytes=peak.bytes, at=known.at, how=peak.how)

    def note_interval(self, interval: float) -> None:
        """Say how far apart the looks are, where the first one had nothing to go by."""
        known = self.peak
        if known is not None and known.interval is None and known.how == "sampled":
            self.peak = msgspec.structs.replace(known, interval=interval)

    def shift(self, seconds: float) -> None:
        """Move everything that was seen in time; the key stays."""
        self._points[::2] = array("d", [at + seconds for at in self.times])
        self.first_seen += seconds
        self.last_seen += seconds
        if self.gone_at is not None:
            self.gone_at += seconds
        if self.peak is not None:
            self.peak = msgspec.structs.replace(self.peak, at=self.peak.at + seconds)
        if self.sampled_fast is not None:
            self.sampled_fast = (self.sampled_fast[0] + seconds, self.sampled_fast[1] + seconds)


class History:
    """All tracks by process. The one value in the core that changes: it belongs to whoever feeds it.

    Keys are made for new processes only. The more processes, the fewer points each may keep, so that thousands of them
    for a day still take some tens of megabytes.

    Attributes:
        answered: each card's latest answer, by uuid, with the time that it is of.
        gauges: each card's utilisation (per cent), memory in use (bytes), power (watts) and temperature (°C) over time,
            by uuid and name; one that is not reported is not there.
        changes: goes up whenever a process comes, goes or becomes better known, and stays where only figures change.
    """

    def __init__(self) -> None:
        self.gauges: dict[str, dict[str, Curve]] = {}
        self.answered: dict[str, tuple[float, Gpu]] = {}
        self._tracks: dict[ProcessKey, Track] = {}
        self._here: dict[tuple[str, str], dict[int, Track]] = {}
        self._gone: dict[ProcessKey, Track] = {}
        self._looked: dict[str, tuple[float, float | None]] = {}
        self.changes = 0

    @property
    def tracks(self) -> Mapping[ProcessKey, Track]:
        return self._tracks

    def here(self, host: str, gpu_uuid: str) -> Mapping[int, Track]:
        """The tracks of the processes on one device, by pid."""
        return self._here.get((host, gpu_uuid), {})

    def peak_of(self, key: ProcessKey) -> int | None:
        """The most in bytes that a process was seen to hold; None of one that was not seen."""
        peak = self._tracks[key].peak if key in self._tracks else None
        return None if peak is None else peak.bytes

    def pace(self, host: str) -> float | None:
        """Seconds between the latest two samples of a host; None after the first."""
        return self._looked.get(host, (0.0, None))[1]

    def grown(self, host: str, gpu_uuid: str) -> int | None:
        """Bytes by which the processes on one device grew since the sample before the last; None if there is none.

        Of one that went up and down in between (which close looks show) its highest counts.
        """
        at, gap = self._looked.get(host, (0.0, None))
        if gap is None:
            return None
        # `gap` is told to a tenth of a second.
        return sum(track.grown(at - gap + 0.06) for track in self.here(host, gpu_uuid).values())

    def exited(self, since: float) -> Iterator[Track]:
        """The processes that have gone at or after `since`, the latest first."""
        for track in reversed(self._gone.values()):
            if track.gone_at is None or track.gone_at < since:
                return
            yield track

    def add(self, sample: Sample) -> None:
        """Take one sample. A process that a device does not list any more has exited; a device that did not answer
        changes nothing.

        If the clock was set back, earlier times move back with it: ages and curves go on.
        """
        limit, host = self._limit(), sample.host.name
        at, pace = self._looked.get(host, (sample.taken_at, None))
        if at - sample.taken_at > SET_BACK:
            seconds = sample.taken_at - (pace or 0.0) - at
            self._looked[host] = (at + seconds, pace)
            for key, track in self._tracks.items():
                if key.host == host:
                    track.shift(seconds)
            for uuid in {gpu.uuid for gpu in sample.gpus}:
                for curve in self.gauges.get(uuid, {}).values():
                    curve.shift(seconds)
                if uuid in self.answered:
                    answered_at, gpu = self.answered[uuid]
                    self.answered[uuid] = (answered_at + seconds, gpu)
        last = self._looked.get(host)
        gap = None if last is None else round(float(sample.taken_at - last[0]), 1)
        if gap is None or gap > 0:
            self._looked[host] = (sample.taken_at, gap)
        if last is not None and last[1] is None and gap:
            for key, track in self._tracks.items():
                if key.host == host:
                    track.note_interval(gap)
        for gpu in sample.gpus:
            if gpu.state == "ok":
                self.answered[gpu.uuid] = (sample.taken_at, gpu)
                values = {
                    "utilization": gpu.utilization,
                    "memory": gpu.memory.used,
                    "power": gpu.power_watts,
                    "temperature": gpu.temperature_celsius,
                }
                curves = self.gauges.setdefault(gpu.uuid, {})
                for name, value in values.items():
                    if value is not None:
                        if name not in curves:
                            curves[name] = Curve()
                        curves[name].add(sample.taken_at, (round(value),))
                if "processes" not in gpu.absent:
                    pace = self.pace(host)
                    for track, process in zip(self._arrivals(sample, gpu), gpu.processes, strict=True):
                        if track.take(process, sample.taken_at, limit, pace):
                            self.changes += 1
        while len(self._gone) > KEEP_EXITED:
            key = next(iter(self._gone))
            del self._gone[key]
            del self._tracks[key]

    def add_looks(self, looks: Iterable[FastSample], sample: Sample) -> None:
        """Take close looks from before `sample`, and before `add` takes that.

        The driver names processes only by their pids. A look counts only where `sample` does not show that the pid
        has meanwhile become another process's.
        """
        looks, limit = list(looks), self._limit()
        # When these processes (a card's uuid and a pid) of the sample started; one that it does not have is left out.
        started, wanted = {}, {(look.key.gpu_uuid, look.key.pid) for look in looks}
        for gpu in sample.gpus:
            pids = [pid for uuid, pid in wanted if uuid == gpu.uuid]
            # Of a pid that stands twice the first counts.
            starts = {process.pid: process.started_at for process in reversed(gpu.processes)} if pids else {}
            started.update({(gpu.uuid, pid): starts[pid] for pid in pids if pid in starts})
        for look in looks:
            key = look.key
            track = self.here(key.host, key.gpu_uuid).get(key.pid)
            if track is None or track.key != key:
                continue
            if started.get((key.gpu_uuid, key.pid), key.started_at) == key.started_at:
                track.look(look, limit)

    def _limit(self) -> int:
        return min(SERIES_LIMIT, max(SERIES_LEAST, POINTS // (len(self._tracks) + 1)))

    def _arrivals(self, sample: Sample, gpu: Gpu) -> list[Track]:
        """The tracks of the processes on a device, in their order; those that are listed no more have gone."""
        here = self._here.setdefault((sample.host.name, gpu.uuid), {})
        tracks: list[Track] = []
        for process in gpu.processes:
            track = here.get(process.pid)
            if track is None or track.key.started_at != process.started_at:
                if track is not None:
                    self._leave(track, sample.taken_at)
                key = process_key(sample.host.name, gpu, process)
                track = self._tracks.get(key)
                if track is None:
                    track = self._tracks[key] = Track(key, process, sample.taken_at)
                track.gone_at = None
                self._gone.pop(key, None)
                here[process.pid] = track
                self.changes += 1
            tracks.append(track)
        if len(here) != len(gpu.processes):  # each of them is in `here` by now
            for pid in here.keys() - {process.pid for process in gpu.processes}:
                track = here.pop(pid)
                if pid in gpu.final_peaks:
                    track.note_peak(Peak(bytes=gpu.final_peaks[pid], at=sample.taken_at, how="accounting"))
                self._leave(track, sample.taken_at)
        return tracks

    def _leave(self, track: Track, at: float) -> None:
        track.gone_at = at
        self._gone[track.key] = track
        self.changes += 1
