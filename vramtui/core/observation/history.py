"""Every process ever seen: its memory over time and its lifetime peak, kept after it is gone."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

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


SHORT = 8  # points for which each row has room; few processes among thousands have more
PAGE, MOST_PAGES = 1 << 12, 1 << 32  # bytes; drivers give whole pages
WHAT_IT_IS = attrgetter("command", "name", "user", "torch", "module_loading", "alloc_conf")
WHO_IT_IS = attrgetter("pid", "started_at")
HOWS = ("sampled", "accounting", "probe")
NONE, NEVER = -(1 << 63), float("nan")  # in a column: bytes and seconds that are not known


class PeakColumns(NamedTuple):
    """Peaks of processes, in columns; None of one that is not known."""

    bytes: "array[int]"
    at: "array[float]"
    interval: "array[float]"
    how: bytearray  # place in HOWS

    def of(self, row: int) -> Peak | None:
        size, interval = self.bytes[row], self.interval[row]
        if size == NONE:
            return None
        known = None if interval != interval else interval  # noqa: PLR0124 - not a number
        return Peak(bytes=size, at=self.at[row], how=HOWS[self.how[row]], interval=known)


class Track(NamedTuple):
    """One process's memory over time. Points are kept only where the value changes; when they are too many, every
    two neighbours become the larger of them, so a peak is never lost. Times are in seconds since the epoch.

    Attributes:
        device: its host and its GPU's uuid.
        process: its latest reading; while it is there, perhaps without bytes and SM %.
        last_used: bytes that it held last; None if it was never known.
        gone_at: when it was first missed on a device that answered; None while it is there.
        looked: from when until when the fast sampler looked at it, and the seconds between those looks.
    """

    table: "TrackTable"
    row: int

    @property
    def device(self) -> tuple[str, str]:
        return self.table.device

    @property
    def process(self) -> Process:
        process: Process = self.table.processes[self.row]
        return process

    @property
    def first_seen(self) -> float:
        return self.table.first_seen[self.row]

    @property
    def last_seen(self) -> float:
        return self.table.seen.get(self.row, self.table.seen_at)

    @property
    def last_used(self) -> int | None:
        size = self.table.last_used[self.row]
        return None if size == NONE else size

    @property
    def peak(self) -> Peak | None:
        return self.table.peaks.of(self.row)

    @property
    def gone_at(self) -> float | None:
        return self.table.gone_at.get(self.row)

    @property
    def looked(self) -> tuple[float, float, float] | None:
        return self.table.looked.get(self.row)

    @property
    def key(self) -> ProcessKey:
        return ProcessKey(*self.device, self.process.pid, self.process.started_at)

    @property
    def times(self) -> "array[float]":
        """The times of its changes, in seconds since the epoch."""
        return self.table.curve(self.row).times

    @property
    def values(self) -> "array[int]":
        """Bytes from each of `times` on."""
        return self.table.curve(self.row).values[0]

    def add(self, at: float, used: int | None, limit: int = LIMIT, interval: float | None = None) -> None:
        """Note that the process held `used` bytes (None: not known) at time `at`, `interval` seconds after the look
        before; keep at most `limit` points.
        """
        if used is not None and used != self.table.last_used[self.row]:
            self.table.note(self.row, at, used, limit, interval)
        self.table.seen[self.row] = at

    @property
    def close_since(self) -> float | None:
        """Since when it has been looked at closely until now; None if it is not."""
        return None if self.looked is None or self.last_seen - self.looked[1] > BREAK else self.looked[0]

    def grown(self, since: float) -> int:
        """How many bytes it grew beyond what it held at that time, in seconds since the epoch."""
        place, values = bisect_right(self.times, since), self.values
        return max(0, max(values[place:]) - (values[place - 1] if place else 0)) if place < len(values) else 0

    def look(self, look: FastSample, limit: int = LIMIT) -> None:
        """Note a close look. One that is older than what is known already is left out."""
        if look.at < self.last_seen:
            return
        is_first = self.looked is None or look.at - self.looked[1] > BREAK
        interval = round(look.interval, 1)
        since = look.at if self.looked is None or is_first else self.looked[0]
        self.table.looked[self.row] = (since, look.at, interval)
        if self.gone_at is None:
            self.add(look.at, look.used, limit, interval)

    def note_peak(self, peak: Peak) -> None:
        """Take a peak learned in another way. An equal one counts as better known; a smaller one is out of date."""
        known = self.peak
        if known is None or peak.bytes > known.bytes:
            self.table.put_peak(self.row, peak)
        elif peak.bytes == known.bytes and known.how == "sampled":
            self.table.put_peak(self.row, Peak(bytes=peak.bytes, at=known.at, how=peak.how))


class TrackTable(Mapping[int, Track]):
    """The processes on one device by pid, or those that have left it, in columns: there are thousands, and of few of
    them somebody wants to know more than what they hold.

    Attributes:
        processes: the latest reading of each, those of the device's list where that has none twice.
        seen_at: when all were there last; `seen` has others by their rows.
        times, pages, counts: points of each where there are few, of whole pages; `longer` has others by their rows.
        place: GiB by which a list that shows them puts them in order; the list sets it, and may keep it.
    """

    def __init__(self, device: tuple[str, str], seen_at: float = 0.0) -> None:
        self.device, self.seen_at = device, seen_at
        self.processes: Any = []
        self.first_seen, self.last_used = array("d"), array("q")
        self.peaks = PeakColumns(array("q"), array("d"), array("d"), bytearray())
        self.place: list[float | None] = []
        self.times, self.pages, self.counts, self.longer = array("d"), array("I"), bytearray(), dict[int, Curve]()
        self.seen: dict[int, float] = {}
        self.looked: dict[int, tuple[float, float, float]] = {}
        self.gone_at: dict[int, float] = {}
        self.free: list[int] = []  # rows of those that are forgotten
        self._rows: dict[int, int] = {}

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __len__(self) -> int:
        return len(self.processes)

    def __iter__(self) -> Iterator[int]:
        return (process.pid for process in self.processes)

    def __getitem__(self, pid: int) -> Track:
        if not self._rows:
            self._rows = {pid: row for row, pid in enumerate(self)}
        return Track(self, self._rows[pid])

    def of(self, facts: Sequence[Process]) -> "Iterable[Track | None]":
        """The tracks of these processes, in their order."""
        if facts is self.processes:
            return (Track(self, row) for row in range(len(facts)))
        return (self.get(process.pid) for process in facts)

    def append(self, process: Process, at: float) -> Track:
        """Add one that is seen for the first time."""
        if self.free:
            row = self.free.pop()
            self.processes[row], self.first_seen[row], self.last_used[row] = process, at, NONE
            self.place[row] = None
            self.counts[row] = 0
            self._put_peak(row, NONE, at)
            return Track(self, row)
        self.processes.append(process)
        self.first_seen.append(at)
        self.last_used.append(NONE)
        self.place.append(None)
        self.counts.append(0)
        self.times.frombytes(bytes(SHORT * self.times.itemsize))
        self.pages.frombytes(bytes(SHORT * self.pages.itemsize))
        self.peaks.bytes.append(NONE)
        self.peaks.at.append(at)
        self.peaks.interval.append(NEVER)
        self.peaks.how.append(0)
        return Track(self, len(self.place) - 1)

    def take(self, track: Track, process: Process) -> Track:
        """Add one with all that is known of it elsewhere."""
        table, was, peaks = track.table, track.row, track.table.peaks
        row = self.append(process, table.first_seen[was]).row
        self.last_used[row], self.place[row] = table.last_used[was], table.place[was]
        here, there = slice(row * SHORT, (row + 1) * SHORT), slice(was * SHORT, (was + 1) * SHORT)
        self.times[here], self.pages[here] = table.times[there], table.pages[there]
        self.counts[row] = table.counts[was]
        if was in table.longer:
            self.longer[row] = table.longer[was]
        self._put_peak(row, peaks.bytes[was], peaks.at[was], peaks.interval[was], peaks.how[was])
        self.seen[row] = track.last_seen
        if track.looked is not None:
            self.looked[row] = track.looked
        return Track(self, row)

    def forget(self, row: int) -> None:
        """Let the row be another's."""
        self.free.append(row)
        for known in (self.seen, self.looked, self.gone_at, self.longer):
            known.pop(row, None)

    def note(self, row: int, at: float, used: int, limit: int, interval: float | None) -> None:
        """Note that a process holds other bytes than before."""
        if used.bit_length() > 63:
            raise OverflowError(f"no machine has {used} bytes")
        self.last_used[row], count, before = used, self.counts[row], self.seen.get(row, self.seen_at)
        if used > self.peaks.bytes[row]:
            self._put_peak(row, used, at, NEVER if interval is None else interval)
        pages, rest = divmod(used, PAGE)
        has_room = count < min(limit, SHORT) and not rest and pages < MOST_PAGES
        if has_room and (at > before or not count) and row not in self.longer:  # of thousands most are so
            self.times[row * SHORT + count], self.pages[row * SHORT + count] = at, pages
            self.counts[row] = count + 1
            return
        curve = self.curve(row)
        curve.add(at, (used,), limit if row not in self.looked else max(limit, SERIES_CLOSE))
        self.longer[row] = curve
        sizes = [divmod(size, PAGE) for size in curve.values[0]] if len(curve.times) <= SHORT else []
        if sizes and not any(rest or pages >= MOST_PAGES for pages, rest in sizes):
            there = slice(row * SHORT, row * SHORT + len(sizes))
            self.times[there], self.pages[there] = curve.times, array("I", (pages for pages, _ in sizes))
            self.counts[row] = len(sizes)
            del self.longer[row]

    def curve(self, row: int) -> Curve:
        if row in self.longer:
            return self.longer[row]
        curve, there = Curve(), slice(row * SHORT, row * SHORT + self.counts[row])
        curve.times, curve.values = self.times[there], (array("q", (PAGE * one for one in self.pages[there])),)
        return curve

    def put_peak(self, row: int, peak: Peak) -> None:
        interval = NEVER if peak.interval is None else peak.interval
        self._put_peak(row, peak.bytes, peak.at, interval, HOWS.index(peak.how))

    def _put_peak(self, row: int, size: int, at: float, interval: float = NEVER, how: int = 0) -> None:
        peaks = self.peaks
        peaks.bytes[row], peaks.at[row], peaks.interval[row], peaks.how[row] = size, at, interval, how

    def learn_interval(self, seconds: float) -> None:
        """Note the time before the peaks of the first sample, which had nothing to go by."""
        peaks = self.peaks
        for row, interval in enumerate(peaks.interval):
            if peaks.bytes[row] != NONE and interval != interval and peaks.how[row] == 0:  # noqa: PLR0124 - not a number
                peaks.interval[row] = seconds

    def shift(self, seconds: float) -> None:
        """Move everything that was seen in time; the keys stay."""
        self.times = array("d", (at + seconds for at in self.times))
        for curve in self.longer.values():
            curve.times = array("d", (at + seconds for at in curve.times))
        self.first_seen = array("d", (at + seconds for at in self.first_seen))
        self.peaks = self.peaks._replace(at=array("d", (at + seconds for at in self.peaks.at)))
        self.seen_at += seconds
        self.seen = {row: at + seconds for row, at in self.seen.items()}
        self.gone_at = {row: at + seconds for row, at in self.gone_at.items()}
        self.looked = {row: (a + seconds, b + seconds, gap) for row, (a, b, gap) in self.looked.items()}


class Tracks(Mapping[ProcessKey, Track]):
    """Those of the processes on each device, and of the gone ones, by process."""

    def __init__(self, here: dict[tuple[str, str], TrackTable], gone: dict[ProcessKey, Track]) -> None:
        self._here, self._gone = here, gone

    def __getitem__(self, key: ProcessKey) -> Track:
        table = self._here.get((key.host, key.gpu_uuid))
        track = None if table is None else table.get(key.pid)
        return self._gone[key] if track is None or track.process.started_at != key.started_at else track

    def __iter__(self) -> Iterator[ProcessKey]:
        here = (table.of(table.processes) for table in self._here.values())
        return chain(self._gone, (track.key for tracks in here for track in tracks if track is not None))

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
        self._here: dict[tuple[str, str], TrackTable] = {}
        self._left: dict[tuple[str, str], TrackTable] = {}
        self._gone: dict[ProcessKey, Track] = {}
        self._looked: dict[str, tuple[float, float | None]] = {}
        self.changes, self.tracks = 0, Tracks(self._here, self._gone)

    def here(self, host: str, gpu_uuid: str) -> TrackTable:
        """The tracks of the processes on one device, by pid."""
        return self._here.get((host, gpu_uuid)) or TrackTable((host, gpu_uuid))

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
            for table in self._of_host(host):
                table.shift(seconds)
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
            for table in self._of_host(host):
                table.learn_interval(gap)
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
                    former, table, rows = self._arrivals(sample, gpu, before)
                    for row, one, process in zip(rows, former, gpu.facts, strict=True):
                        if process.peak_memory is not None:
                            peak = Peak(bytes=process.peak_memory, at=sample.taken_at, how="accounting")
                            Track(table, row).note_peak(peak)
                        if process is not one and WHAT_IT_IS(process) != WHAT_IT_IS(one):
                            self.changes += 1
                    last_used, is_twice = table.last_used, len(table) != len(rows)
                    for row, used in zip(rows, gpu.sizes, strict=True):
                        if used != last_used[row] and used is not None:
                            table.note(row, sample.taken_at, used, limit, pace)
                        if is_twice:
                            table.seen[row] = sample.taken_at
                    table.seen_at = sample.taken_at
                    table.seen.clear()
        while len(self._gone) > KEEP_EXITED:
            track = self._gone.pop(next(iter(self._gone)))
            track.table.forget(track.row)
            if len(track.table.free) == len(track.table):
                self._left.pop(track.device, None)

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
        return min(LIMIT, max(SERIES_LEAST, POINTS // (len(self.tracks) + 1)))

    def _of_host(self, host: str) -> list[TrackTable]:
        return [one for tables in (self._here, self._left) for one in tables.values() if one.device[0] == host]

    def _arrivals(
        self, sample: Sample, gpu: Gpu, before: tuple[float, Gpu] | None
    ) -> tuple[Sequence[Process], TrackTable, Sequence[int]]:
        """Return what is known of the processes that a device lists, its table, and the row of each in it; those
        of `before` it lists no more have gone.
        """
        device, facts = (sample.host.name, gpu.uuid), gpu.facts
        table = self._here.setdefault(device, TrackTable(device, sample.taken_at))
        known = table.processes
        if len(known) == len(facts) and all(
            one is other or WHO_IT_IS(one) == WHO_IT_IS(other) for one, other in zip(known, facts, strict=True)
        ):
            table.processes = facts
            return known, table, range(len(facts))
        old = {process.pid: row for row, process in enumerate(known)}
        now, rows, former = TrackTable(device, table.seen_at), dict[int, int](), list[Process]()
        for process in facts:
            pid, row = process.pid, rows.get(process.pid)
            if row is not None and now.processes[row].started_at != process.started_at:  # listed twice, as two
                self._leave(Track(now, row), now.processes[row], sample.taken_at)
                now.forget(row)
                row = None
            was = old.pop(pid, None)
            if row is None and was is not None and known[was].started_at != process.started_at:
                self._leave(Track(table, was), known[was], sample.taken_at)
                was = None
            if row is not None:
                former.append(now.processes[row])
            elif was is not None:
                rows[pid] = row = now.take(Track(table, was), process).row
                former.append(known[was])
            else:
                gone = self._gone.pop(process_key(sample.host.name, gpu, process), None) if self._gone else None
                former.append(process if gone is None else gone.process)
                rows[pid] = row = (
                    now.append(process, sample.taken_at) if gone is None else now.take(gone, process)
                ).row
                if gone is not None:
                    gone.table.forget(gone.row)
                self.changes += 1
            now.processes[row] = process
        places = {} if before is None else {one.pid: at for at, one in enumerate(before[1].facts)}
        for pid, was in old.items():
            track, process = Track(table, was), known[was]
            if before is not None and pid in places:
                process = before[1].processes[places[pid]]
            if pid in gpu.final_peaks:
                track.note_peak(Peak(bytes=gpu.final_peaks[pid], at=sample.taken_at, how="accounting"))
            self._leave(track, process, sample.taken_at)
        if len(rows) == len(facts):
            now.processes = facts
        now.times, now.pages, now.counts = now.times[:], now.pages[:], now.counts[:]  # without room for more
        self._here[device] = now
        return former, now, [rows[process.pid] for process in facts]

    def _leave(self, track: Track, process: Process, at: float) -> None:
        left = self._left.setdefault(track.device, TrackTable(track.device))
        gone = left.take(track, process)
        left.gone_at[gone.row] = at
        self._gone[gone.key] = gone
        self.changes += 1
