"""The memory graph: what a bucket holds, how high it is drawn, and that it stands still."""

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vramtui.app.state.memory_series import ceiling
from vramtui.app.state.view import Series
from vramtui.app.ui.graph import DOTS, MOVES_EVERY, braille_rows, buckets, levels
from vramtui.core.base.units import GIB


def series(points: list[tuple[float, int]], start: float, end: float) -> Series:
    return Series(
        title="",
        times=array("d", [at for at, _ in points]),
        values=array("q", [value for _, value in points]),
        start=start,
        end=end,
        ceiling=100,
        predicted=None,
    )


def test_a_bucket_holds_the_largest_value_that_held_within_it() -> None:
    points = [(0.0, 5), (10.0, 50), (11.0, 7), (30.0, 9)]
    assert buckets(series(points, 0.0, 40.0), 4) == [5, 50, 7, 9]


def test_before_the_first_reading_there_is_nothing() -> None:
    assert buckets(series([(25.0, 5)], 0.0, 40.0), 4) == [None, None, 5, 5]


def test_the_picture_stands_still_between_steps() -> None:
    """Half a second later the same stretches of time lie in the same buckets."""
    points = [(float(at), at % 7) for at in range(0, 120, 3)]
    assert buckets(series(points, 0.1, 120.1), 30) == buckets(series(points, 0.9, 120.9), 30)


def test_short_stretches_move_together_and_what_is_new_is_seen_at_once() -> None:
    """Each move costs some bytes a line, which one a second would be most of what a quiet screen sends over ssh."""
    points = [(float(at), 10 + at) for at in range(200)]
    seen = [buckets(series(points[: at + 1], at - 120.0, float(at)), 180) for at in range(130, 190)]
    assert [picture[-1] for picture in seen] == [points[at][1] for at in range(130, 190)]
    moved = sum(one[:90] != other[:90] for one, other in pairwise(seen))
    assert 0 < moved <= 60 / MOVES_EVERY + 1


def test_braille_is_filled_from_below() -> None:
    assert braille_rows([0, 1, 2, 3, 4, 8], 2) == ["  ⢸", "⢀⣴⣿"]


def test_any_memory_at_all_is_seen() -> None:
    assert levels([1, None, 0, 100, 1000], 100, 2) == [1, 0, 0, 8, 8]


amounts = st.integers(0, 2**40)
histories = st.lists(st.tuples(st.floats(0, 1000), amounts), min_size=1, max_size=50).map(sorted)


@given(histories, st.integers(2, 200))
def test_no_bucket_shows_what_was_never_held(points: list[tuple[float, int]], count: int) -> None:
    found = buckets(series(points, 0.0, 1000.0), count)
    held = {value for _, value in points}
    assert len(found) == count
    assert all(value is None or value in held for value in found)


@given(histories)
def test_the_peak_of_the_span_is_drawn(points: list[tuple[float, int]]) -> None:
    later = [(at + 1.0, value) for at, value in points]
    found = buckets(series(later, 0.0, 1001.0), 40)
    last_at = dict(later)
    assert max(value for value in found if value is not None) >= max(last_at.values())


@given(st.lists(st.integers(0, 5 * DOTS), min_size=2, max_size=40), st.integers(1, 5))
def test_as_many_dots_as_levels(dots: list[int], height: int) -> None:
    dots = dots[: len(dots) // 2 * 2]
    rows = braille_rows(dots, height)
    drawn = sum((ord(cell) - 0x2800).bit_count() for row in rows for cell in row if cell != " ")
    assert drawn == sum(min(level, height * DOTS) for level in dots)


@given(st.integers(0, 2**42), st.one_of(st.none(), st.integers(GIB, 2**42)))
def test_the_ceiling_is_above_everything_and_not_above_the_card(highest: int, total: int | None) -> None:
    top = ceiling(highest, total)
    assert top >= (highest if total is None else min(highest, 2 * total))
    if total is not None and highest <= total:
        assert top <= max(total, highest * 1.08)
