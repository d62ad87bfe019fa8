"""A Ledger's totals are the sums of its parts, and what is unknown stays so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.estimate.estimate import CATEGORIES, LINES, Category, Ledger, ledger_from_parts

sizes = st.integers(min_value=0, max_value=2**45)
leaves = st.dictionaries(st.sampled_from(CATEGORIES), sizes)


@given(leaves, sizes, sizes, sizes)
def test_every_total_is_the_sum_of_what_is_under_it(
    parts: dict[Category, int], cached: int, context: int, other: int
) -> None:
    allocated = sum(parts.values())
    ledger = ledger_from_parts(parts, reserved=allocated + cached, context=context, other=other)
    assert sum(ledger.bytes_of(category) or 0 for category in CATEGORIES) == ledger.allocated == allocated
    assert ledger.cached == cached
    assert ledger.reserved == allocated + cached
    assert ledger.process == allocated + cached + context + other


def test_less_reserved_than_allocated_is_refused() -> None:
    with pytest.raises(ValueError, match="less than allocated"):
        ledger_from_parts({"weights": 10}, reserved=9, context=0)


def test_what_was_not_measured_is_unknown_and_not_zero() -> None:
    ledger = Ledger(process=5)
    assert [line for line in LINES if ledger.bytes_of(line) is not None] == ["process"]
