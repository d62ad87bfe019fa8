"""Bytes, percentages and durations as they are written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import (
    GIB,
    KIB,
    MIB,
    format_bytes,
    format_column,
    format_duration,
    format_gib,
    format_gib_narrow,
    format_in,
    format_percent,
    format_short,
    parse_size,
    unit_of,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "–"), (0, "0 B"), (512, "512 B"), (8519680, "8.1 MiB"), (61 * GIB // 4, "15.2 GiB"), (-MIB, "-1.0 MiB")],
)
def test_a_byte_count_takes_the_largest_unit_that_fits(count: int | None, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "–"), (0, "0.0"), (51 * MIB, "0.05"), (97 * MIB, "0.09"), (98 * MIB, "0.1"), (76 * GIB, "76.0")],
)
def test_less_than_a_tenth_of_a_gib_has_hundredths(count: int | None, text: str) -> None:
    assert format_gib_narrow(count) == text


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (None, GIB, "–"),
        (0, MIB, "0 B"),
        (30 * GIB, GIB, "30.0"),
        (GIB // 20, GIB, "51.2 MiB"),
        (4 * MIB, GIB, "4.0 MiB"),
        (1023 * KIB, GIB, "1023 KiB"),
        (359_424, KIB, "351.0"),
        (512, MIB, "512 B"),
    ],
)
def test_a_figure_under_a_unit_never_reads_as_nothing(count: int | None, unit: int, text: str) -> None:
    assert format_in(count, unit) == text


@given(st.integers(1, 1 << 50))
def test_a_short_size_takes_eight_columns_at_most(count: int) -> None:
    assert len(format_short(count)) <= 8
    assert len(format_in(count, unit_of(count)[0])) <= 9


@pytest.mark.parametrize(
    ("fraction", "text"), [(None, "–"), (0.0, "0.0 %"), (-0.0001, "0.0 %"), (-0.005, "−0.5 %"), (0.25, "+25.0 %")]
)
def test_percentages_are_signed_and_never_minus_zero(fraction: float | None, text: str) -> None:
    assert format_percent(fraction) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (0, "0 s"), (185, "3 m 05 s"), (8040, "2 h 14 m"), (273600, "3 d 04 h")]
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


def test_a_column_has_one_unit() -> None:
    sizes = (15 * GIB + 21 * MIB, 36 * MIB, 128 * KIB, 0, None, -4 * MIB, -GIB)
    figures = [format_column(size, GIB) for size in sizes]
    assert figures == ["15.02", "0.04", "<0.01", "0", "–", "-<0.01", "-1.00"]


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000 + "GiB", "1048577TiB"])
def test_more_memory_than_there_is_is_a_short_sentence(text: str) -> None:
    with pytest.raises(UserError, match="more memory than any host has") as caught:
        parse_size(text)
    assert len(str(caught.value)) < 500
