"""One process's memory over time and its lifetime peak."""

from array import array
from bisect import bisect_left, bisect_right

import msgspec

from vramtui.core.observation.readings import Process, ProcessKey

SERIES_LIMIT = 3600
BREAK = 2.5  # seconds without a look after which a process is no longer looked at closely


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
        last_used: bytes that it held last; None where it was never known.
        peak: the most it was seen to hold.
        sampled_fast: from when until when the fast sampler looked at it, in seconds since the epoch; None where never.
        fast_interval: seconds between those looks.
    """

    __slots__ = (
        "fast_interval", "first_seen", "gone_at", "key", "last_seen", "last_used", "peak", "process", "sampled_fast",
        "times", "values",
    )  # fmt: skip

    def __init__(self, key: ProcessKey, process: Process, at: float) -> None:
        self.key = key
        self.process = process
        self.first_seen = self.last_seen = at
        self.gone_at: float | None = None
        self.times = array("d")
        self.values = array("q")
        self.last_used: int | None = None
        self.peak: Peak | None = None
        self.sampled_fast: tuple[float, float] | None = None
        self.fast_interval: float | None = None

    def take(self, process: Process, at: float, limit: int, interval: float | None) -> bool:
        """Note its reading at a time; the rest as `add`. Says whether it tells more of what the process is."""
        last, self.process = self.process, process
        if process.peak_memory is not None:
            self.note_peak(Peak(bytes=process.peak_memory, at=at, how="accounting"))
        used = process.used_memory
        self.last_seen = at
        if used is not None and used != self.last_used:
            self._add(at, used, limit, interval)
        return process is not last and (
            process.command != last.command
            or process.name != last.name
            or process.user != last.user
            or process.torch != last.torch
            or process.module_loading != last.module_loading
            or process.alloc_conf != last.alloc_conf
        )

    def add(self, at: float, used: int | None, limit: int = SERIES_LIMIT, interval: float | None = None) -> None:
        """Note that the process held `used` bytes (None: not known) at time `at`; keep at most `limit` points.

        `interval` is how many seconds ago the look before was.
        """
        self.last_seen = at
        if used is not None and used != self.last_used:
            self._add(at, used, limit, interval)

    def _add(self, at: float, used: int, limit: int, interval: float | None) -> None:
        self.last_used = used
        peak, times, values = self.peak, self.times, self.values
        if peak is None or used > peak.bytes:
            self.peak = Peak(bytes=used, at=at, interval=interval)
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
        if self.sampled_fast is None or self.last_seen - self.sampled_fast[1] > BREAK:
            return None
        return self.sampled_fast[0]

    def grown(self, since: float) -> int:
        """How many bytes it grew beyond what it held at that time, in seconds since the epoch."""
        place = bisect_right(self.times, since)
        later = self.values[place:]
        return max(0, max(later) - (self.values[place - 1] if place else 0)) if later else 0

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
        self.times = array("d", [at + seconds for at in self.times])
        self.first_seen += seconds
        self.last_seen += seconds
        if self.gone_at is not None:
            self.gone_at += seconds
        if self.peak is not None:
            self.peak = msgspec.structs.replace(self.peak, at=self.peak.at + seconds)
        if self.sampled_fast is not None:
            self.sampled_fast = (self.sampled_fast[0] + seconds, self.sampled_fast[1] + seconds)

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
