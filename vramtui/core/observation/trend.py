"""Whether memory grows steadily, and when it would reach a limit. A job that has taken its pool does not grow."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import msgspec

WINDOW = 300.0  # seconds looked back
LEAST_SPAN = 60.0
LEAST_RISES = 6
LEAST_GROWTH = 64 << 20  # bytes in the window
STEADY = 0.9  # share of the changes in the window that go up


class Trend(msgspec.Struct, frozen=True):
    """Growth in bytes a second; it was between `slow` and `fast` over the parts of the window."""

    slope: float
    slow: float
    fast: float

    def reaches(self, room: int) -> tuple[float, float]:
        """Seconds until `room` more bytes are taken: the soonest and the latest."""
        return room / self.fast, room / self.slow if self.slow > 0 else float("inf")


def trend_of(times: Sequence[float], values: Sequence[int], now: float) -> Trend | None:
    """The growth of a series whose points stand where its value changed; None where it is no steady growth.

    Steady is: rising again and again in each third of the last minutes, nearly never falling, and not all at once.
    """
    first = bisect_left(times, now - WINDOW)
    if len(times) - first <= LEAST_RISES or now - times[first] < LEAST_SPAN:
        return None
    grown = values[-1] - values[first]
    if grown < LEAST_GROWTH:
        return None
    points = list(zip(times[first:], values[first:], strict=True))
    steps = [after - before for (_, before), (_, after) in pairwise(points)]
    rises = sum(step > 0 for step in steps)
    if rises < STEADY * len(steps) or max(steps) > grown / 2:
        return None
    thirds = _by_thirds(points, now)
    if min(thirds) <= 0:
        return None
    return Trend(grown / (now - points[0][0]), min(thirds), max(thirds))


def _by_thirds(points: list[tuple[float, int]], now: float) -> list[float]:
    """Bytes a second in each third of the time since the first point."""
    start, width = points[0][0], (now - points[0][0]) / 3
    levels = [_value_at(points, start + width * third) for third in range(4)]
    return [(after - before) / width for before, after in pairwise(levels)]


def _value_at(points: list[tuple[float, int]], at: float) -> int:
    known = [value for time, value in points if time <= at]
    return known[-1] if known else points[0][1]
