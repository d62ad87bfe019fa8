"""Bytes, percentages and durations as they are written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB, format_bytes, format_duration, format_gib, format_percent, parse_size


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "–"), (0, "0 B"), (512, "512 B"), (8519680, "8.1 MiB"), (61 * GIB // 4, "15.2 GiB"), (-MIB, "-1.0 MiB")],
)
def test_a_byte_count_takes_the_largest_unit_that_fits(count: int | None, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("fraction", "text"), [(None, "–"), (0.0, "0.0 %"), (-0.0001, "0.0 %"), (-0.005, "−0.5 %"), (0.25, "+25.0 %")]
)
def test_percentages_are_signed_and_never_minus_zero(fraction: float | None, text: str) -> None:
    assert format_percent(fraction) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0, "0 s"), (185, "3 m 05 s"), (8040, "2 h 14 m"), (273600, "3 d 04 h")],
)
def test_durations_show_their_two_largest_units(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("24GiB", 24 * GIB), ("24 gb", 24 * 10**9), ("512", 512), ("1.5g", 3 * GIB // 2), (" 80 MiB ", 80 * MIB)],
)
def test_sizes_are_read_with_their_unit(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1..5g", "12 parsecs", "1e9"])
def test_what_is_no_size_is_said(text: str) -> None:
    with pytest.raises(UserError, match="is not a size"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**50))
def test_a_formatted_size_reads_back_within_its_rounding(count: int) -> None:
    assert abs(parse_size(format_bytes(count)) - count) <= 0.05 * count + 1


@given(st.integers(min_value=0, max_value=2**50))
def test_the_gib_column_agrees_with_the_bytes(count: int) -> None:
    assert abs(float(format_gib(count, 3)) * GIB - count) <= GIB / 1000
