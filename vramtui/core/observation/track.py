"""One process's memory over time and its lifetime peak.

With thousands of processes nobody looks at most of them: what a sample says of all of them is kept as one column, and
a track reads its own places of the last few columns when it is asked, or when there are UNREAD of them.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from vramtui.core.observation.readings import Process, ProcessKey, Roster

SERIES_LIMIT = 3600
BREAK = 1.0  # seconds without a look after which a process is no longer looked at closely
UNREAD = 8  # samples after which every track takes what it has not read: a few megabytes with 16,000 processes


class FastSample(msgspec.Struct, frozen=True, gc=False):
    """What one process held, in bytes, at a moment between two samples (seconds since the epoch).

    `interval` is how many seconds had passed since the look before.
    """

    key: ProcessKey
    at: float
    used: int
    interval: float


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The most a process was seen to hold, in bytes, and when. `how`: `sampled`, `accounting` or `probe`.

    `interval` is how many seconds lay between the looks when a sampled one was seen; None while there was but one.
    What lasts for less can be higher and not be seen.
    """

    bytes: int
    at: float
    how: str = "sampled"
    interval: float | None = None


class HeldColumns:
    """What the processes of a device held at its latest samples, which its tracks have not all read yet.

    Attributes:
        roster: who the processes are.
        tracks: theirs, in the order of the device's list.
        times: of the samples, in seconds since the epoch.
        held: at each of them, bytes of each process in the order of `tracks`; None where the driver does not say.
        intervals: seconds since the sample before each of them.
        processes: the latest reading of each.
        limit: how many points a track may keep.
    """

    __slots__ = ("held", "intervals", "limit", "processes", "roster", "times", "tracks")

    def __init__(self, roster: Roster, tracks: "list[Track]") -> None:
        self.roster = roster
        self.tracks = tracks
        self.times: list[float] = []
        self.held: list[Sequence[int | None]] = []
        self.intervals: list[float | None] = []
        self.processes: Sequence[Process] = ()
        self.limit = SERIES_LIMIT
        for place, track in enumerate(tracks):
            track.read_from(self, place)

    def add(
        self,
        at: float,
        held: Sequence[int | None],
        *,
        processes: Sequence[Process],
        interval: float | None,
        limit: int,
    ) -> None:
        """Note one more sample; the arguments are the attributes' next values."""
        if self.times and at <= self.times[-1]:  # so that the times of what is not read only grow
            self.settle()
        self.times.append(at)
        self.held.append(held)
        self.intervals.append(interval)
        self.processes, self.limit = processes, limit
        if len(self.times) >= UNREAD:
            self.settle()

    def settle(self) -> None:
        """Let every track read what it has not."""
        for track, process, column in zip(self.tracks, self.processes, zip(*self.held, strict=True), strict=False):
            track.read(self, process, column)
        self.times, self.held, self.intervals = [], [], []

    def end(self) -> None:
        """Let every track read what it has not, the last time: a track of one that has gone keeps nothing of others."""
        self.settle()
        self.tracks, self.processes = [], ()


class Track:
    """One process's memory over time. Points are kept only where the value changes; when they are too many, every
    two neighbours become the larger of them, so a peak is never lost.

    Attributes:
        key: who it is.
        first_seen: in seconds since the epoch.
        gone_at: when it was first missed on a device that answered; None while it is there.
    """

    __slots__ = (
        "_columns",
        "_last_seen",
        "_last_used",
        "_peak",
        "_place",
        "_process",
        "_sampled_fast",
        "_seen",
        "_times",
        "_values",
        "first_seen",
        "gone_at",
        "key",
    )

    def __init__(self, key: ProcessKey, process: Process, at: float) -> None:
        self.key = key
        self.first_seen = at
        self.gone_at: float | None = None
        self._process = process
        self._times = array("d")
        self._values = array("q")
        self._last_seen = at
        self._last_used: int | None = None
        self._peak: Peak | None = None
        self._sampled_fast: tuple[float, float] | None = None
        self._columns: HeldColumns | None = None
        self._place = self._seen = 0

    @property
    def process(self) -> Process:
        """Its latest reading."""
        self._catch_up()
        return self._process

    @property
    def times(self) -> "array[float]":
        """When it changed, in seconds since the epoch."""
        self._catch_up()
        return self._times

    @property
    def values(self) -> "array[int]":
        """What it held from each of `times` on, in bytes."""
        self._catch_up()
        return self._values

    @property
    def last_seen(self) -> float:
        """When it was there last, in seconds since the epoch."""
        self._catch_up()
        return self._last_seen

    @property
    def last_used(self) -> int | None:
        """Bytes that it held last; None where it was never known."""
        self._catch_up()
        return self._last_used

    @property
    def peak(self) -> Peak | None:
        """The most it was seen to hold."""
        self._catch_up()
        return self._peak

    @property
    def sampled_fast(self) -> tuple[float, float] | None:
        """From when until when the fast sampler looked at it, in seconds since the epoch; None where never."""
        return self._sampled_fast

    def take(self, process: Process, at: float, limit: int, interval: float | None) -> None:
        """Note its reading at a time; the rest as `add`."""
        self._process = process
        if process.peak_memory is not None:
            self.note_peak(Peak(bytes=process.peak_memory, at=at, how="accounting"))
        self.add(at, process.used_memory, limit, interval)

    def read_from(self, columns: HeldColumns, place: int) -> None:
        """Take what comes from these columns, at this place of them."""
        self._columns, self._place, self._seen = columns, place, 0

    def read(self, columns: HeldColumns, process: Process, column: Sequence[int | None]) -> None:
        """Take all of the columns that it has not read: it will be asked no more for them.

        Args:
            columns: those that it reads from.
            process: its latest reading.
            column: what it held at each of the columns' times.
        """
        self._add_all(columns, column)
        self._process, self._seen = process, 0

    def _catch_up(self) -> None:
        columns, place = self._columns, self._place
        if columns is not None and self._seen < len(columns.times):
            self._add_all(columns, [held[place] for held in columns.held])
            self._process, self._seen = columns.processes[place], len(columns.times)

    def _add_all(self, columns: HeldColumns, column: Sequence[int | None]) -> None:
        times = columns.times
        self._last_seen = times[-1]
        if self._seen == len(column) or column.count(self._last_used) == len(column):
            return
        if self._times and times[self._seen] <= self._times[-1]:
            for place in range(self._seen, len(column)):
                used = column[place]
                if used is not None and used != self._last_used:
                    self._add(times[place], used, columns.limit, columns.intervals[place])
            return
        # The same with nothing looked up again for each of many thousands of values.
        last, peak, highest = self._last_used, self._peak, None
        most = None if peak is None else peak.bytes
        changed, when = self._values.append, self._times.append
        for place in range(self._seen, len(column)):
            used = column[place]
            if used != last and used is not None:
                changed(used)
                when(times[place])
                last = used
                if most is None or used > most:
                    most, highest = used, place
        self._last_used = last
        if most is not None and highest is not None:
            self._peak = Peak(bytes=most, at=times[highest], interval=columns.intervals[highest])
        if len(self._values) > columns.limit:
            self._thin()

    def add(self, at: float, used: int | None, limit: int = SERIES_LIMIT, interval: float | None = None) -> None:
        """Note that the process held `used` bytes (None: not known) at time `at`; keep at most `limit` points.

        `interval` is how many seconds ago the look before was.
        """
        self._catch_up()
        self._last_seen = at
        if used is not None and used != self._last_used:
            self._add(at, used, limit, interval)

    def _add(self, at: float, used: int, limit: int, interval: float | None) -> None:
        self._last_used = used
        peak, times, values = self._peak, self._times, self._values
        if peak is None or used > peak.bytes:
            self._peak = Peak(bytes=used, at=at, interval=interval)
        if times and at <= times[-1]:  # a clock that is being corrected: what was noted of this time is replaced
            place = bisect_left(times, at)
            del times[place:], values[place:]
        values.append(used)  # before its time: what is no whole number is refused here
        times.append(at)
        if len(values) > limit:
            self._thin()

    @property
    def close_since(self) -> float | None:
        """Since when it has been looked at closely until now; None where it is not."""
        if self._sampled_fast is None or self.last_seen - self._sampled_fast[1] > BREAK:
            return None
        return self._sampled_fast[0]

    def grown(self, since: float) -> int:
        """By how many bytes it went beyond what it held at that time, in seconds since the epoch."""
        place = bisect_right(self.times, since)
        later = self.values[place:]
        return max(0, max(later) - (self.values[place - 1] if place else 0)) if later else 0

    def look(self, look: FastSample, limit: int = SERIES_LIMIT) -> None:
        """Note a close look. One that is older than what is known already is left out."""
        if look.at < self.last_seen:
            return
        if self._sampled_fast is None or look.at - self._sampled_fast[1] > BREAK:
            self._sampled_fast = (look.at, look.at)
        else:
            self._sampled_fast = (self._sampled_fast[0], look.at)
        if self.gone_at is None:
            self.add(look.at, look.used, limit, round(look.interval, 1))

    def note_peak(self, peak: Peak) -> None:
        """Take a peak learned in another way. An equal one counts as better known; a smaller one is out of date."""
        known = self.peak
        if known is None or peak.bytes > known.bytes:
            self._peak = peak
        elif peak.bytes == known.bytes and known.how == "sampled":
            self._peak = Peak(bytes=peak.bytes, at=known.at, how=peak.how)

    def note_interval(self, interval: float) -> None:
        """Say how far apart the looks are, where the first one had nothing to go by."""
        known = self.peak
        if known is not None and known.interval is None and known.how == "sampled":
            self._peak = msgspec.structs.replace(known, interval=interval)

    def shift(self, seconds: float) -> None:
        """Move everything that was seen in time; the key stays."""
        self._catch_up()
        self._times = array("d", [at + seconds for at in self._times])
        self.first_seen += seconds
        self._last_seen += seconds
        if self.gone_at is not None:
            self.gone_at += seconds
        if self._peak is not None:
            self._peak = msgspec.structs.replace(self._peak, at=self._peak.at + seconds)
        if self._sampled_fast is not None:
            self._sampled_fast = (self._sampled_fast[0] + seconds, self._sampled_fast[1] + seconds)

    def _thin(self) -> None:
        times, values = array("d"), array("q")
        for i in range(0, len(self._values) - 1, 2):
            j = i if self._values[i] >= self._values[i + 1] else i + 1
            times.append(self._times[j])
            values.append(self._values[j])
        if len(self._values) % 2:
            times.append(self._times[-1])
            values.append(self._values[-1])
        self._times, self._values = times, values
