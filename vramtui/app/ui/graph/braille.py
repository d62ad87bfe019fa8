"""What a series looks like in dots: the largest value in each stretch of time, and the area under it in braille."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache

from vramtui.app.state.view import Series

# Dots of a braille cell from the bottom up, left and right column.
_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
DOTS = 4
MOVES_EVERY = 4.0  # seconds; moved it sends what is new in it, and between two moves its end alone


def buckets(series: Series, count: int) -> list[int | None]:
    """The largest value in each of `count` equal stretches from start to end; None before the first reading."""
    values = series.values
    places = fullest(series.times, values, series.start, series.end, count)
    return [None if place is None else values[place] for place in places]


def last_stretch(start: float, end: float, count: int) -> tuple[int, float]:
    """Which multiple of its length the last of `count` stretches from `start` to `end` begins at, and that length."""
    length, together = _steps(start, end, count)
    return math.ceil(end / length / together) * together - 1, length


def moved_at(start: float, end: float, count: int) -> float:
    """When the picture of those stretches moved last; `end` where that is long ago."""
    length, together = _steps(start, end, count)
    if length * together > 2 * MOVES_EVERY:
        return end
    return (math.ceil(end / length / together) - 1) * together * length


def _steps(start: float, end: float, count: int) -> tuple[float, int]:
    """How long each of `count` stretches is, and by how many of them the picture moves at once."""
    length = (end - start) / count
    # Each move costs some bytes a line, and so does each column that goes on with the latest value.
    return length, max(1, min(round(MOVES_EVERY / length), count // 8))


def fullest(times: Sequence[float], values: Sequence[int], start: float, end: float, count: int) -> list[int | None]:
    """Which of the points has the largest value in each of `count` equal stretches from `start` to `end` (seconds
    since the epoch); None before the first point.

    Stretches lie on whole multiples of their length, so that the picture moves in steps and never trembles. It moves by
    several of them at once where they are short: until then the last ones go on with the latest value.
    """
    last, length = last_stretch(start, end, count)
    most: list[int | None] = []
    points = len(times)
    # The latest point at or before the stretch: in most stretches nothing is added to what that says.
    point = bisect_right(times, (last - count + 1) * length) - 1
    for k in range(last - count + 1, last + 1):
        stop_at = min((k + 1) * length, end)
        later = point + 1
        if later == points or times[later] > stop_at:
            most.append(point if point >= 0 else None)
            continue
        stop = bisect_right(times, stop_at, later)
        inside = range(max(point, 0), stop if stop_at == end else bisect_left(times, stop_at, later))
        most.append(max(inside, key=values.__getitem__, default=None))
        point = stop - 1
    return most


def levels(values: Sequence[int | None], ceiling: int, height: int) -> list[int]:
    """Dots from the bottom for each bucket: at least one for any memory at all, at most the full height."""
    most = height * DOTS
    known = {value: max(1, min(most, round(value * most / ceiling))) if value else 0 for value in set(values)}
    return [known[value] for value in values]


def braille_rows(dots: Sequence[int], height: int) -> list[str]:
    """The filled area under `dots` (two for each column) as rows of braille, the top one first."""
    columns = [_column(left, right, height) for left, right in zip(dots[::2], dots[1::2], strict=False)]
    return ["".join(row) for row in zip(*columns, strict=True)]


@lru_cache(maxsize=1 << 12)
def _column(left: int, right: int, height: int) -> str:
    """One column of cells, from the top down."""
    cells = []
    for base in range((height - 1) * DOTS, -1, -DOTS):
        code = sum(_LEFT[: max(0, left - base)]) + sum(_RIGHT[: max(0, right - base)])
        cells.append(chr(0x2800 + code) if code else " ")
    return "".join(cells)
