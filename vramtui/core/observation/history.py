"""Every process ever seen: its memory over time and its lifetime peak, kept after it is gone."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from struct import Struct

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


SERIES_LIMIT = 3600
BREAK = 2.5  # seconds without a look after which close looks have ended
# Points of a process that is looked at closely, and the least of another; all processes share POINTS.
SERIES_CLOSE, SERIES_LEAST, POINTS = 1024, 8, 1 << 17
KEEP_EXITED = 4096
# Seconds by which a sample may be older than the one before it. More is a clock that was set back.
SET_BACK = 2.0
GAUGES = ("utilization", "memory", "power", "temperature")


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


POINT = Struct("2d")  # a time and bytes
WHAT_IT_IS = attrgetter("command", "name", "user", "torch", "module_loading", "alloc_conf")


class Track(msgspec.Struct, eq=False, gc=False):  # thousands, none of them in a cycle
    """One process's memory over time. Points are kept only where the value changes; when they are too many, every
    two neighbours become the larger of them, so a peak is never lost.

    Attributes:
        device: its host and its GPU's uuid.
        process: its latest reading; while it is there, perhaps without bytes and SM %.
        first_seen: in seconds since the epoch.
        last_seen: when it was there last, in seconds since the epoch.
        last_used: bytes that it held last; None if it was never known.
        peak: the most it was seen to hold.
        place: GiB by which a list that shows it puts it in order; the list sets it.
        gone_at: when it was first missed on a device that answered; None while it is there.
        looked: from when until when the fast sampler looked at it, in seconds since the epoch, and the seconds between
            those looks; None if it never did.
        points: when what it held changed and what it held from then on, each as POINT.
    """

    device: tuple[str, str]
    process: Process
    first_seen: float
    last_seen: float
    last_used: int | None = None
    peak: Peak | None = None
    place: float | None = None
    gone_at: float | None = None
    looked: tuple[float, float, float] | None = None
    points: bytes = b""

    @property
    def key(self) -> ProcessKey:
        """Who it is."""
        return ProcessKey(*self.device, self.process.pid, self.process.started_at)

    @property
    def times(self) -> "array[float]":
        """The times of its changes, in seconds since the epoch."""
        return array("d", self.points)[::2]

    @property
    def values(self) -> "array[int]":
        """Bytes from each of `times` on."""
        return array("q", map(int, array("d", self.points)[1::2]))

    def add(self, at: float, used: int | None, limit: int = SERIES_LIMIT, interval: float | None = None) -> None:
        """Note that the process held `used` bytes (None: not known) at time `at`, `interval` seconds after the look
        before; keep at most `limit` points.
        """
        before, self.last_seen = self.last_seen, at
        if used is None or used == self.last_used:
            return
        if used.bit_length() > 63:
            raise OverflowError(f"no machine has {used} bytes")
        self.last_used, points = used, self.points
        if self.peak is None or used > self.peak.bytes:
            self.peak = Peak(bytes=used, at=at, interval=interval)
        if points and at <= before:  # a clock that is being corrected: what was noted of this time is replaced
            points = points[: POINT.size * bisect_left(self.times, at)]
        points += POINT.pack(at, used)
        if len(points) > POINT.size * (limit if self.looked is None else max(limit, SERIES_CLOSE)):
            pairs = list(POINT.iter_unpack(points))
            larger = (max(pairs[i : i + 2], key=itemgetter(1)) for i in range(0, len(pairs), 2))
            points = b"".join(POINT.pack(*pair) for pair in larger)
        self.points = points

    @property
    def close_since(self) -> float | None:
        """Since when it has been looked at closely until now; None if it is not."""
        return None if self.looked is None or self.last_seen - self.looked[1] > BREAK else self.looked[0]

    def grown(self, since: float) -> int:
        """How many bytes it grew beyond what it held at that time, in seconds since the epoch."""
        place, values = bisect_right(self.times, since), self.values
        return max(0, max(values[place:]) - (values[place - 1] if place else 0)) if place < len(values) else 0

    def look(self, look: FastSample, limit: int = SERIES_LIMIT) -> None:
        """Note a close look. One that is older than what is known already is left out."""
        if look.at < self.last_seen:
            return
        is_first = self.looked is None or look.at - self.looked[1] > BREAK
        interval = round(look.interval, 1)
        self.looked = (look.at if self.looked is None or is_first else self.looked[0], look.at, interval)
        if self.gone_at is None:
            self.add(look.at, look.used, limit, interval)

    def note_peak(self, peak: Peak) -> None:
        """Take a peak learned in another way. An equal one counts as better known; a smaller one is out of date."""
        known = self.peak
        if known is None or peak.bytes > known.bytes:
            self.peak = peak
        elif peak.bytes == known.bytes and known.how == "sampled":
            self.peak = Peak(bytes=peak.bytes, at=known.at, how=peak.how)

    def shift(self, seconds: float) -> None:
        """Move everything that was seen in time; the key stays."""
        self.points = b"".join(POINT.pack(at + seconds, used) for at, used in POINT.iter_unpack(self.points))
        self.first_seen += seconds
        self.last_seen += seconds
        if self.gone_at is not None:
            self.gone_at += seconds
        if self.peak is not None:
            self.peak = msgspec.structs.replace(self.peak, at=self.peak.at + seconds)
        if self.looked is not None:
            self.looked = (self.looked[0] + seconds, self.looked[1] + seconds, self.looked[2])


class Tracks(Mapping[ProcessKey, Track]):
    """Those of the processes on each device, and of the gone ones, by process."""

    def __init__(self, here: dict[tuple[str, str], dict[int, Track]], gone: dict[ProcessKey, Track]) -> None:
        self._here, self._gone = here, gone

    def __getitem__(self, key: ProcessKey) -> Track:
        track = self._here.get((key.host, key.gpu_uuid), {}).get(key.pid)
        return self._gone[key] if track is None or track.process.started_at != key.started_at else track

    def __iter__(self) -> Iterator[ProcessKey]:
        return chain(self._gone, (track.key for tracks in self._here.values() for track in tracks.values()))

    def __len__(self) -> int:
        return len(self._gone) + sum(map(len, self._here.values()))


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
        self._here: dict[tuple[str, str], dict[int, Track]] = {}
        self._gone: dict[ProcessKey, Track] = {}
        self._looked: dict[str, tuple[float, float | None]] = {}
        self.changes, self.tracks = 0, Tracks(self._here, self._gone)

    def here(self, host: str, gpu_uuid: str) -> Mapping[int, Track]:
        """The tracks of the processes on one device, by pid."""
        return self._here.get((host, gpu_uuid), {})

    def peak_of(self, key: ProcessKey) -> int | None:
        """The most in bytes that a process was seen to hold; None of one that was not seen."""
        track = self.tracks.get(key)
        return None if track is None or track.peak is None else track.peak.bytes

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
            for track in self.tracks.values():
                if track.device[0] == host:
                    track.shift(seconds)
            for uuid in {gpu.uuid for gpu in sample.gpus}:
                for curve in self.gauges.get(uuid, {}).values():
                    curve.times = array("d", [at + seconds for at in curve.times])
                if uuid in self.answered:
                    answered_at, gpu = self.answered[uuid]
                    self.answered[uuid] = (answered_at + seconds, gpu)
        last = self._looked.get(host)
        gap = None if last is None else round(float(sample.taken_at - last[0]), 1)
        if gap is None or gap > 0:
            self._looked[host] = (sample.taken_at, gap)
        if last is not None and last[1] is None and gap:
            for track in self.tracks.values():
                if track.device[0] == host:
                    known = track.peak  # the first had nothing to go by
                    if known is not None and known.interval is None and known.how == "sampled":
                        track.peak = msgspec.structs.replace(known, interval=gap)
        for gpu in sample.gpus:
            if gpu.state == "ok":
                before = self.answered.get(gpu.uuid)
                self.answered[gpu.uuid] = (sample.taken_at, gpu)
                figures = (gpu.utilization, gpu.memory.used, gpu.power_watts, gpu.temperature_celsius)
                curves = self.gauges.setdefault(gpu.uuid, {})
                for name, value in zip(GAUGES, figures, strict=True):
                    if value is not None:
                        curve = curves.get(name) or curves.setdefault(name, Curve())
                        curve.add(sample.taken_at, (round(value),))
                if "processes" not in gpu.absent:
                    pace = self.pace(host)
                    tracks = self._arrivals(sample, gpu, before)
                    for track, process, used in zip(tracks, gpu.facts, gpu.sizes, strict=True):
                        former, track.process = track.process, process
                        if process.peak_memory is not None:
                            track.note_peak(Peak(bytes=process.peak_memory, at=sample.taken_at, how="accounting"))
                        track.add(sample.taken_at, used, limit, pace)
                        if process is not former and WHAT_IT_IS(process) != WHAT_IT_IS(former):
                            self.changes += 1
        while len(self._gone) > KEEP_EXITED:
            del self._gone[next(iter(self._gone))]

    def add_looks(self, looks: Iterable[FastSample], sample: Sample) -> None:
        """Take close looks from before `sample`, and before `add` takes that.

        The driver names processes only by their pids. A look counts only where `sample` does not show that the pid
        has meanwhile become another process's.
        """
        looks, limit = list(looks), self._limit()
        # When these processes (a card's uuid and a pid) of the sample started; of a pid that stands twice the first.
        gpus = {gpu.uuid: gpu for gpu in sample.gpus}
        started = {
            (uuid, one.pid): one.started_at
            for uuid in {look.key.gpu_uuid for look in looks} & gpus.keys()
            for one in reversed(gpus[uuid].facts)
        }
        for look in looks:
            key = look.key
            track = self.here(key.host, key.gpu_uuid).get(key.pid)
            if track is None or track.key != key:
                continue
            if started.get((key.gpu_uuid, key.pid), key.started_at) == key.started_at:
                track.look(look, limit)

    def _limit(self) -> int:
        return min(SERIES_LIMIT, max(SERIES_LEAST, POINTS // (len(self.tracks) + 1)))

    def _arrivals(self, sample: Sample, gpu: Gpu, before: tuple[float, Gpu] | None) -> list[Track]:
        """The tracks of the processes on a device, in their order; those of `before` it lists no more have gone."""
        device, tracks = (sample.host.name, gpu.uuid), list[Track]()
        here = self._here.setdefault(device, {})
        for process in gpu.facts:
            track = here.get(process.pid)
            if track is None or track.process.started_at != process.started_at:
                if track is not None:
                    self._leave(track, sample.taken_at)
                track = self._gone.pop(process_key(sample.host.name, gpu, process), None) if self._gone else None
                track = track or Track(device, process, sample.taken_at, sample.taken_at)
                track.gone_at = None
                here[process.pid] = track
                self.changes += 1
            tracks.append(track)
        if len(here) != len(gpu.facts):  # each of them is in `here` by now
            places = {} if before is None else {one.pid: at for at, one in enumerate(before[1].facts)}
            for pid in here.keys() - {process.pid for process in gpu.facts}:
                track = here.pop(pid)
                if before is not None and pid in places:
                    track.process = before[1].processes[places[pid]]
                if pid in gpu.final_peaks:
                    track.note_peak(Peak(bytes=gpu.final_peaks[pid], at=sample.taken_at, how="accounting"))
                self._leave(track, sample.taken_at)
        return tracks

    def _leave(self, track: Track, at: float) -> None:
        track.gone_at = at
        self._gone[track.key] = track
        self.changes += 1
