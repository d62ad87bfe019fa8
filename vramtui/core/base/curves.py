"""A bounded number of values over time; the largest are never lost."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

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
        """Note what holds from `at` on, in place of all that was known of that time and after it."""
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
