"""A sample of the generated faults; `python -m tests.faults --generated` judges them all."""

from pathlib import Path

import pytest

from tests.faults.combinations import CALLS, CODES, HANGS, RUNNING, WHEN, Combination, combinations
from tests.faults.installed import meet
from tests.faults.rules import bench

EVERY = 29  # which shares no factor with the ways and the times, so that all of them are among the sample
SAMPLE = list(combinations())[::EVERY]


@pytest.mark.parametrize("call", CALLS)
def test_no_rule_is_broken(call: str, tmp_path: Path) -> None:
    cases = [case for case in SAMPLE if case.call == call]
    with bench(tmp_path) as judge_of:
        judged = {case.name: judge_of.judge(case) for case in cases}
    assert {name: one.broken for name, one in judged.items() if one.broken} == {}
    assert any(one.met for one in judged.values()), "nobody makes this call, so its faults prove nothing"


@pytest.mark.slow
@pytest.mark.parametrize("what", [HANGS, "garbage"])
def test_in_the_installed_program(what: str, tmp_path: Path) -> None:
    """The other card goes on, q ends it, and the terminal is as it was."""
    assert meet(Combination("nvmlDeviceGetMemoryInfo_v2", what, RUNNING), tmp_path).broken == []


def test_the_sample_has_every_way_and_every_time() -> None:
    assert {case.when for case in SAMPLE} == {*WHEN}
    assert {case.what for case in SAMPLE} >= {*CODES, "hangs", "slow", "absurd", "short", "garbage"}
    assert len(list(combinations())) > 2000
