"""Two entries about one process become one, whoever writes them and in whichever order."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.estimate.estimate import Ledger
from vramtui.core.runs.run import Run, merged, run_key, same_process

GIB = 1 << 30
STARTED = Run(
    key=run_key("h", "GPU-1", 7, 1000.0),
    source="run",
    host="h",
    gpu_uuid="GPU-1",
    gpu_name="H200",
    pid=7,
    started_at=1000.0,
    ended_at=1600.0,
    ending="failed",
    exit_code=3,
    preset="",
    method="",
    predicted=Ledger(),
    observed=Ledger(allocated=8 * GIB, reserved=9 * GIB, context=GIB // 2, process=9 * GIB + GIB // 2),
    peak_how="probe",
    times=(5.0, 50.0),
    values=(GIB, 9 * GIB),
    versions={"torch": "2.9"},
)
WATCHED = msgspec.structs.replace(
    STARTED, source="watched", started_at=1000.7, key=run_key("h", "GPU-1", 7, 1000.7), ended_at=1599.0,
    ending="exited", exit_code=None, preset="gpt2-124m", method="analytic", predicted=Ledger(process=10 * GIB),
    observed=Ledger(process=10 * GIB), peak_how="sampled", times=(0.0, 500.0), values=(GIB, 10 * GIB),
    versions={"driver": "580"},
)  # fmt: skip


def test_a_pid_that_is_used_again_is_another_process() -> None:
    assert same_process(STARTED, WATCHED)
    for changes in ({"pid": 8}, {"host": "other"}, {"gpu_uuid": "GPU-2"}, {"started_at": 1700.0, "ended_at": None}):
        other = msgspec.structs.replace(WATCHED, **changes)
        assert not same_process(STARTED, other)
        assert not same_process(other, STARTED)


@pytest.mark.parametrize("pair", [(STARTED, WATCHED), (WATCHED, STARTED)])
def test_each_gives_what_it_knows_best(pair: tuple[Run, Run]) -> None:
    both = merged(*pair)
    assert both.key == pair[0].key
    assert (both.source, both.peak_how, both.exit_code, both.ending) == ("run", "probe", 3, "failed")
    assert (both.preset, both.method, both.predicted.process) == ("gpt2-124m", "analytic", 10 * GIB)
    assert both.observed.allocated == 8 * GIB
    assert both.observed.process == 10 * GIB
    assert both.observed.context == GIB
    assert both.times == pytest.approx((0.7, 500.7))
    assert both.versions == {"torch": "2.9", "driver": "580"}


@given(st.permutations((STARTED, WATCHED, msgspec.structs.replace(WATCHED, ended_at=None, ending="running"))))
def test_the_order_does_not_matter_but_for_the_key(order: list[Run]) -> None:
    first = merged(merged(order[0], order[1]), order[2])
    other = merged(merged(STARTED, WATCHED), STARTED)
    assert msgspec.structs.replace(first, key="") == msgspec.structs.replace(other, key="")


def test_a_job_that_was_missed_for_a_moment_goes_on() -> None:
    back = msgspec.structs.replace(WATCHED, ended_at=None, ending="running", seen_until=1700.0)
    assert merged(WATCHED, back).ending == "running"
    assert merged(back, WATCHED).ending == "running"
    late = msgspec.structs.replace(back, seen_until=1500.0)
    assert merged(WATCHED, late).ended_at == 1599.0
