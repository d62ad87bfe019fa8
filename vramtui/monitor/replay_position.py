"""Where in a recording the playing is. Knows no screen, no file, and only the clock that it is given."""

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence

from vramtui.core.base.errors import UserError

SPEEDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class NotThereError(UserError):
    """A place that the recording does not have, as far as it is known."""


class PlaybackPosition:
    """A position that moves with the clock while it plays, and stops at the end.

    Args:
        times: of the samples, in order; seconds since the epoch.
        clock: seconds, of which only differences matter.
    """

    __slots__ = ("_clock", "_looked_at", "_times", "playing", "position", "speed")

    def __init__(self, times: Sequence[float], clock: Callable[[], float] = time.monotonic) -> None:
        self._times = times
        self._clock = clock
        self._looked_at = clock()
        self.position = times[0]
        self.speed = SPEEDS[0]
        self.playing = True

    @property
    def start(self) -> float:
        """The first sample's time."""
        return self._times[0]

    @property
    def end(self) -> float:
        """The last sample's time."""
        return self._times[-1]

    @property
    def count(self) -> int:
        """How many samples there are up to the position; the last of them is the one to show."""
        return max(1, bisect_right(self._times, self.position))

    def advance(self) -> None:
        """Go on as far as the clock did since the last time."""
        now = self._clock()
        passed, self._looked_at = now - self._looked_at, now
        if self.playing:
            self.position = min(self.end, self.position + max(0.0, passed) * self.speed)
            self.playing = self.position < self.end

    def toggle(self) -> None:
        """Play or pause; at the end: play from the start."""
        self.advance()
        if not self.playing and self.position >= self.end:
            self.position = self.start
        self.playing = not self.playing

    def step(self, samples: int) -> None:
        """Hold, that many samples further on (or back)."""
        self.playing = False
        self.position = self._times[min(len(self._times), max(1, self.count + samples)) - 1]

    def seek(self, position: float) -> None:
        """Go there, or to the nearer end; it plays on if it played."""
        self.advance()
        self.position = min(self.end, max(self.start, position))

    def faster(self, direction: int) -> float:
        """The next speed up (1) or down (-1), which is returned."""
        self.advance()
        place = min(len(SPEEDS) - 1, max(0, SPEEDS.index(self.speed) + direction))
        self.speed = SPEEDS[place]
        return self.speed

    def place(self, text: str) -> float:
        """What a person means by `12:03:20`, `+90`, `-1m30s`, `50%`.

        A time of the day is the one nearest to the position, where the recording spans several days.

        Raises:
            NotThereError: it is a time that is not in the recording.
            UserError: it is none of those.
        """
        text = text.strip().lower()
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text)
        if match:
            return self.start + (self.end - self.start) * min(100.0, float(match[1])) / 100
        if text[:1] in {"+", "-"}:
            seconds = _duration(text[1:].strip())
            return self.position + (seconds if text[0] == "+" else -seconds)
        return self._time_of_day(text)

    def _time_of_day(self, text: str) -> float:
        match = re.fullmatch(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?", text)
        if match is None or int(match[1]) > 23 or int(match[2]) > 59 or float(match[3] or 0) >= 60:
            raise UserError(f"{text!r} is not a position in a recording; write 12:03:20, +90, -1m30s or 50%")
        hour, minute, second = int(match[1]), int(match[2]), float(match[3] or 0)
        first = time.localtime(self.start)
        days = int((self.end - self.start) // 86400) + 2
        meant = [
            time.mktime((first.tm_year, first.tm_mon, first.tm_mday + day, hour, minute, 0, 0, 0, -1)) + second
            for day in range(days)
        ]
        # A time as it is shown leaves fractions of its second out.
        inside = [at for at in meant if self.start - 1 < at <= self.end]
        if not inside:
            raise NotThereError(
                f"{text} is not in the recording, which goes from {clock(self.start)} to {clock(self.end)}"
            )
        return min(inside, key=lambda at: abs(at - self.position))


def clock(at: float) -> str:
    """Seconds since the epoch as this place's time of the day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def _duration(text: str) -> float:
    """Seconds in `90`, `90s`, `1m`, `1m30s`, `2h`, `1:30`."""
    match = re.fullmatch(r"(?:(\d+):)?(\d+):(\d{2})", text)
    if match:
        return int(match[1] or 0) * 3600 + int(match[2]) * 60 + int(match[3])
    match = re.fullmatch(r"(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+(?:\.\d+)?)s?)?", text)
    if not text or match is None:
        raise UserError(f"{text!r} is not a duration; write +90, +1m30s, -2h or +1:30")
    return int(match[1] or 0) * 3600 + int(match[2] or 0) * 60 + float(match[3] or 0)
