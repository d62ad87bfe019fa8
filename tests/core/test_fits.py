"""The one verdict: what it says on either side of the edge, and within the stated error of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.estimate.estimate import USUAL_ERROR
from vramtui.core.estimate.fits import Fit, fit_beside_others

GIB, MIB = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("needs", "has", "error", "line"),
    [
        (int(22.2 * GIB), int(79.2 * GIB), 0.08, "✓ fits H100: needs 22.2 GiB, has 79.2 GiB: 57.0 GiB spare"),
        (int(80.0 * GIB), int(79.2 * GIB), 0.08, "✗ does not fit H100: needs 80.0 GiB, has 79.2 GiB: 0.8 GiB short"),
        (
            24 * GIB - 19 * MIB,
            24 * GIB,
            0.08,
            "! tight on H100: needs 24.0 GiB, has 24.0 GiB: 19.0 MiB spare, and it may need up to 8 % more",
        ),
        (24 * GIB - 19 * MIB, 24 * GIB, 0.0, "✓ fits H100: needs 24.0 GiB, has 24.0 GiB: 19.0 MiB spare"),
        (0, 0, 0.08, "✓ fits H100: needs 0 B, has 0 B: 0 B spare"),
    ],
)
def test_the_line(needs: int, has: int, error: float, line: str) -> None:
    assert Fit(needs=needs, has=has, error=error).line("H100") == line


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.none() | st.floats(0, 1))
def test_the_verdicts_do_not_overlap(needs: int, has: int, error: float | None) -> None:
    fit = Fit(needs=needs, has=has, error=error)
    assert fit.is_enough == (fit.verdict != "does not fit") == (fit.spare >= 0)
    usual = USUAL_ERROR if error is None else error
    assert (fit.verdict == "fits") == (needs * (1 + usual) <= has and needs <= has)


def test_beside_others() -> None:
    alone = fit_beside_others(60 * GIB, 80 * GIB, None, 0.08, "GPU 0")
    assert (alone.verdict, alone.has) == ("fits", 80 * GIB)
    short = fit_beside_others(60 * GIB, 80 * GIB, 50 * GIB, 0.08, "GPU 0")
    assert short.verdict == "does not fit"
    assert short.sentence == "needs 60.0 GiB, has 50.0 GiB: 10.0 GiB short; would fit GPU 0 if empty"
    never = fit_beside_others(90 * GIB, 80 * GIB, 50 * GIB, 0.08, "GPU 0")
    assert never.sentence == "needs 90.0 GiB, has 80.0 GiB: 10.0 GiB short"
    assert fit_beside_others(60 * GIB, 80 * GIB, 62 * GIB, 0.08, "GPU 0").verdict == "tight"
