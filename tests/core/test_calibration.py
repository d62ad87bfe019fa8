"""What runs teach, and what an estimate looks like corrected by it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import a_run
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.estimate import Estimate, Part
from vramtui.core.estimate.ledger import Ledger, Line, ledger_from_parts
from vramtui.core.runs.calibration import ENOUGH, Calibration, calibrate, calibrated
from vramtui.core.runs.run import Run

CONTEXTS = (498, 504, 512)


def run(number: int, context: int = 504, cached: float = 0.25, **changes: object) -> Run:
    """A probed job on this host that allocated 8 GiB."""
    reserved = round(8 * GIB * (1 + cached))
    made = a_run(
        key=str(number),
        host="h",
        pid=number,
        started_at=float(number),
        ended_at=number + 5.0,
        ending="exited",
        run_kind="train",
        predicted=Ledger(process=12 * GIB, other=0),
        observed=Ledger(allocated=8 * GIB, reserved=reserved, context=context * MIB, process=reserved + context * MIB),
        peak_how="probe",
        versions={"driver": "580.1"},
    )
    return msgspec.structs.replace(made, **changes)


def estimate(**changes: object) -> Estimate:
    ledger = ledger_from_parts({"weights": 10 * GIB}, reserved=11 * GIB, context=640 * MIB, other=7 * MIB)
    lines: tuple[tuple[Line, int], ...] = (
        ("weights", 10 * GIB),
        ("cached", GIB),
        ("context", 600 * MIB),
        ("context", 40 * MIB),
        ("other", 7 * MIB),
    )
    parts = tuple(
        Part(name=line, line=line, bytes=size, at_peak=size, formula="f", source="s", lifetime="l")
        for line, size in lines
    )
    made = Estimate(method="analytic", parts=parts, ledger=ledger, peak_phase="step", assumptions=("a",), error=0.05)
    return msgspec.structs.replace(made, **changes)


def test_the_median_and_the_spread() -> None:
    found = calibrate([run(number, size) for number, size in enumerate(CONTEXTS)], "h")
    (context,) = found.contexts
    assert (context.gpu_name, context.driver, context.seen.runs) == ("NVIDIA H200", "580.1", 3)
    assert (context.seen.lowest, context.seen.median, context.seen.highest) == (498 * MIB, 504 * MIB, 512 * MIB)
    (share,) = found.shares
    assert (share.method, share.model_kind, share.run_kind, share.seen.median) == (
        "analytic",
        "transformer",
        "train",
        1.25,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "another"},
        {"ended_at": None, "ending": "running"},
        {"ending": "out_of_memory"},
        {"ending": "failed"},
        {"peak_how": "sampled", "observed": Ledger(process=9 * GIB)},
        {"observed": Ledger(allocated=8 * GIB, reserved=7 * GIB, process=7 * GIB)},
    ],
)
def test_what_teaches_nothing(changes: dict[str, object]) -> None:
    assert calibrate([msgspec.structs.replace(run(number), **changes) for number in range(5)], "h") == Calibration(
        host="h"
    )


def test_memory_of_other_libraries_is_not_the_context() -> None:
    found = calibrate([run(number, predicted=Ledger(process=GIB, other=300 * MIB)) for number in range(5)], "h")
    assert found.contexts == ()
    assert len(found.shares) == 1


def test_too_few_are_shown_but_not_gone_by() -> None:
    few = calibrate([run(number) for number in range(ENOUGH - 1)], "h")
    assert few.contexts[0].seen.runs == ENOUGH - 1
    assert few.context("NVIDIA H200", "580.1") is None
    assert few.share("analytic", "transformer", "train") is None


def test_the_right_card_and_driver() -> None:
    newer = [run(number, 700, versions={"driver": "590"}) for number in range(10, 13)]
    found = calibrate([*(run(number) for number in range(3)), *newer], "h")
    older = found.context("NVIDIA H200", "580.1")
    assert older is not None
    assert older.seen.median == 504 * MIB
    for name in ("H200", "NVIDIA H200", "NVIDIA H200 NVL"):
        latest = found.context(name)
        assert latest is not None
        assert latest.driver == "590"
    assert found.context("NVIDIA H200", "600") is None
    assert found.context("H100") is None
    assert found.context("a card that nobody knows") is None
    assert found.share("traced", "transformer", "train") is None


def test_a_corrected_estimate() -> None:
    found = calibrate([run(number, size) for number, size in enumerate(CONTEXTS)], "h")
    plain = estimate()
    now = calibrated(plain, found.context("H200"), found.share("analytic", "transformer", "train"))
    assert now.ledger.cached == 10 * GIB // 4
    assert now.ledger.context == 504 * MIB
    assert now.reserved == 12 * GIB + GIB // 2
    assert now.process == 12 * GIB + GIB // 2 + 504 * MIB + 7 * MIB
    assert now.allocated == plain.allocated
    assert now.assumptions == (
        "a",
        "calibrated with 3 runs on this host: context 504.0 MiB (498.0 MiB–512.0 MiB)",
        "calibrated with 3 runs on this host: reserved 1.25 × allocated (1.25–1.25)",
    )
    assert estimate() == plain
    assert sum(part.at_peak for part in now.parts) == now.process
    assert [part.name for part in now.parts] == ["weights", "other", "cached (calibrated)", "context (calibrated)"]


def test_without_anything_learnt_it_is_the_same_one() -> None:
    plain = estimate()
    assert calibrated(plain, None, None) is plain
    found = calibrate([run(number) for number in range(3)], "h")
    rule = estimate(ledger=Ledger(weights=GIB, process=GIB))
    assert calibrated(rule, found.context("H200"), found.share("analytic", "transformer", "train")) is rule


@given(
    st.lists(st.tuples(st.integers(1, 2000), st.floats(0, 3)), min_size=ENOUGH, max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_the_ledger_always_adds_up(seen: list[tuple[int, float]], with_context: bool, with_share: bool) -> None:
    found = calibrate([run(number, *one) for number, one in enumerate(seen)], "h")
    context = found.context("H200") if with_context else None
    share = found.share("analytic", "transformer", "train") if with_share else None
    ledger = calibrated(estimate(), context, share).ledger
    assert ledger.reserved == (ledger.allocated or 0) + (ledger.cached or 0)
    assert ledger.process == ledger.reserved + (ledger.context or 0) + (ledger.other or 0)
    if context is not None:
        assert context.seen.lowest <= context.seen.median <= context.seen.highest
