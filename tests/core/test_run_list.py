"""Which runs are listed, in which order, and how their errors are counted."""

import os
import subprocess
import sys
import time

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import a_run
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.runs.run import StoredRun
from vramtui.core.runs.run_list import (
    BARS,
    EDGES,
    RUN_COLUMNS,
    RunColumn,
    RunFilter,
    ending_words,
    errors_of,
    filtered,
    histogram,
    in_order,
    preset_values,
    with_gone,
)
from vramtui.sources.host.processes import process_is_gone

RUN = a_run(
    source="watched", pid=1, command="python Train.py --lr 1", ended_at=2000.0, ending="exited",
    predicted=Ledger(process=100), observed=Ledger(process=95),
)  # fmt: skip


def kept(number: int, **changes: object) -> StoredRun:
    return StoredRun(number, msgspec.structs.replace(RUN, **changes))


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (RunFilter(), [1, 2, 3]), (RunFilter(preset="GPT2"), [1, 3]), (RunFilter(gpu="l40"), [2]),
        (RunFilter(host="gpu02"), [3]), (RunFilter(since=1500.0), [3]), (RunFilter(failed=True), [2]),
        (RunFilter(words="train h200"), [1, 3]), (RunFilter(words="train nowhere"), []),
        (RunFilter(gpu="GPU-0", failed=True, preset="x"), []),
    ],
)  # fmt: skip
def test_filters(wanted: RunFilter, numbers: list[int]) -> None:
    runs = [
        kept(1),
        kept(2, gpu_name="NVIDIA L40S", preset="llama", ending="out_of_memory"),
        kept(3, host="gpu02", started_at=1600.0),
    ]
    assert [one.id for one in filtered(runs, wanted)] == numbers


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        ("when", [3, 2, 1]), ("host", [2, 1, 3]), ("gpu", [1, 3, 2]), ("preset", [2, 1, 3]), ("predicted", [2, 1, 3]),
        ("observed", [1, 2, 3]), ("error", [2, 1, 3]), ("lasted", [1, 2, 3]), ("ended", [1, 3, 2]),
    ],
)  # fmt: skip
def test_orders(column: RunColumn, numbers: list[int]) -> None:
    runs = [
        kept(1),
        kept(
            2, started_at=1001.0, host="a", gpu_name="Z", preset="a", predicted=Ledger(process=200),
            observed=Ledger(process=90), ending="failed",
        ),
        kept(3, started_at=1002.0, host="z", preset="", observed=Ledger(), predicted=Ledger()),
    ]  # fmt: skip
    assert [one.id for one in in_order(runs, column)] == numbers
    turned = [one.id for one in in_order(runs, column, reverse=True)]
    if column in {"preset", "predicted", "observed", "error"}:
        assert turned == [numbers[1], numbers[0], 3]  # what is not known stays last
    elif column in {"when", "host", "lasted"}:
        assert turned == numbers[::-1]
    else:
        assert turned == [2, 1, 3]  # equal ones keep their order


@given(
    st.lists(st.builds(kept, st.integers(), started_at=st.floats(0, 9), host=st.text())), st.sampled_from(RUN_COLUMNS)
)
def test_sorting_loses_nothing(runs: list[StoredRun], column: RunColumn) -> None:
    assert sorted(one.id for one in in_order(runs, column)) == sorted(one.id for one in runs)


def test_bars_of_errors() -> None:
    assert len(BARS) == len(EDGES) + 1
    assert histogram([-0.5, -0.02, 0.0, 0.019, 0.02, 0.3]) == (1, 0, 0, 0, 3, 1, 0, 0, 1)
    assert sum(histogram([])) == 0
    runs = [RUN, msgspec.structs.replace(RUN, ending="failed"), msgspec.structs.replace(RUN, method="traced")]
    assert errors_of(runs, "analytic", "transformer") == [pytest.approx(-0.05)]


def test_the_values_of_a_preset() -> None:
    lora = {"rank": 8, "target_modules": ["q_proj"], "use_dora": True}
    workload = {"run": {"batch_size": 8, "lora": lora, "target_length": None, "x": False}, "parallel": None}
    told = "batch_size = 8, lora = {rank = 8, target_modules = [q_proj], use_dora = true}, x = false"
    assert preset_values(msgspec.structs.replace(RUN, workload=workload)) == (("run", told),)
    assert preset_values(RUN) == ()


def test_words_for_the_end() -> None:
    words = {
        "ended": RUN,
        "exited": msgspec.structs.replace(RUN, exit_code=0),
        "out of memory (1)": msgspec.structs.replace(RUN, ending="out_of_memory", exit_code=1),
        "running": msgspec.structs.replace(RUN, ended_at=None, ending="running", seen_until=2999.0),
        "last seen 1 h 06 m ago": msgspec.structs.replace(RUN, ended_at=None, ending="running", times=(0.0, 40.0)),
    }
    for said, run in words.items():
        now = 3000.0 if said == "running" else 5000.0
        assert ending_words(run, now) == said


def test_only_runs_of_this_host_whose_process_is_gone_have_ended() -> None:
    runs = [a_run(host=host, pid=pid, ended_at=None, ending="running") for host, pid in (("a", 1), ("a", 2), ("b", 1))]
    runs.append(a_run(host="a", pid=1, ended_at=None, ending="failed"))
    settled = with_gone([StoredRun(at, run) for at, run in enumerate(runs)], "a", lambda pid, _at: pid == 1)
    assert [one.run.ending for one in settled] == ["exited", "running", "running", "failed"]
    assert not settled[0].run.finished, "nobody saw its end: it teaches nothing"
    assert ending_words(settled[0].run, settled[0].run.last_known + 1) == "ended"
    assert msgspec.structs.replace(settled[0].run, ending="running") == runs[0]


def test_a_process_is_gone_when_its_pid_is_or_belongs_to_a_later_one() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert process_is_gone(ended.pid, time.time())
    started = psutil.Process().create_time()
    assert not process_is_gone(os.getpid(), started)
    assert process_is_gone(os.getpid(), started - 3600), "this pid belonged to another one then"
