"""Bytes, percentages and durations as they are written and read."""

from collections.abc import Callable
from functools import partial

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
    ("write", "value", "text"),
    [
        *((format_bytes, count, text) for count, text in (
            (None, "–"), (0, "0 B"), (512, "512 B"), (8519680, "8.1 MiB"), (61 * GIB // 4, "15.2 GiB"),
            (-MIB, "-1.0 MiB"),
        )),
        # Less than a tenth of a GiB has hundredths.
        *((format_gib_narrow, count, text) for count, text in (
            (None, "–"), (0, "0.0"), (51 * MIB, "0.05"), (97 * MIB, "0.09"), (98 * MIB, "0.1"), (76 * GIB, "76.0"),
        )),
        # Percentages are signed and never minus zero.
        *((format_percent, fraction, text) for fraction, text in (
            (None, "–"), (0.0, "0.0 %"), (-0.0001, "0.0 %"), (-0.005, "−0.5 %"), (0.25, "+25.0 %"),
        )),
        # Durations show their two largest units.
        *((format_duration, seconds, text) for seconds, text in (
            (None, "–"), (0, "0 s"), (185, "3 m 05 s"), (8040, "2 h 14 m"), (273600, "3 d 04 h"),
        )),
        # A figure under a unit never reads as nothing.
        *((partial(format_in, unit=unit), count, text) for count, unit, text in (
            (None, GIB, "–"), (0, MIB, "0 B"), (30 * GIB, GIB, "30.0"), (GIB // 20, GIB, "51.2 MiB"),
            (4 * MIB, GIB, "4.0 MiB"), (1023 * KIB, GIB, "1023 KiB"), (359_424, KIB, "351.0"), (512, MIB, "512 B"),
        )),
        # A column has one unit.
        *((partial(format_column, unit=GIB), count, text) for count, text in (
            (15 * GIB + 21 * MIB, "15.02"), (36 * MIB, "0.04"), (128 * KIB, "<0.01"), (0, "0"), (None, "–"),
            (-4 * MIB, "-<0.01"), (-GIB, "-1.00"),
        )),
    ],
)  # fmt: skip
def test_how_a_value_is_written(write: Callable[[float | None], str], value: float | None, text: str) -> None:
    assert write(value) == text


@given(st.integers(1, 1 << 50))
def test_a_short_size_takes_eight_columns_at_most(count: int) -> None:
    assert len(format_short(count)) <= 8
    assert len(format_in(count, unit_of(count)[0])) <= 9


@pytest.mark.parametrize(
    ("text", "count"),
    [("24GiB", 24 * GIB), ("24 gb", 24 * 10**9), ("512", 512), ("1.5g", 3 * GIB // 2), (" 80 MiB ", 80 * MIB)],
)
def test_sizes_are_read_with_their_unit(text: str, count: int) -> None:
    assert parse_size(text) == count


@given(st.integers(min_value=0, max_value=2**50))
def test_a_formatted_size_reads_back_within_its_rounding(count: int) -> None:
    assert abs(parse_size(format_bytes(count)) - count) <= 0.05 * count + 1
    assert abs(float(format_gib(count, 3)) * GIB - count) <= GIB / 1000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "is not a size") for text in ("", "GiB", "-1GiB", "1..5g", "12 parsecs", "1e9")),
        *((text, "more memory than any host has") for text in ("9" * 400, "9" * 5000 + "GiB", "1048577TiB")),
    ],
)
def test_what_is_no_size_is_a_short_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse_size(text)
    assert len(str(caught.value)) < 500
