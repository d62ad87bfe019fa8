"""Servers, files and pipelines of public reports: every case is answered, and those that are not right are named."""

import pytest

from tests.recorded.cases import FOLDER, Outcome, outcomes
from vramtui.core.base import toml

# What is not right today, with the reason, and what an answer states a range for; both lists may only shrink.
KNOWN, RANGES = toml.loads((FOLDER / "known.toml").read_text(encoding="utf-8")).values()


def name_of(one: Outcome) -> str:
    return f"{one.kind}/{one.name}"


@pytest.fixture(scope="module")
def found() -> list[Outcome]:
    return outcomes(("serving", "llamacpp", "diffusion"))


def test_each_case_is_right_or_known(found: list[Outcome]) -> None:
    off = {
        name_of(one): (one.verdict, one.figures, one.answer[:300])
        for one in found
        if one.verdict != ("in range" if name_of(one) in RANGES else "right")
    }
    assert {name: off[name] for name in off if name not in KNOWN} == {}
    assert sorted(off) == sorted(KNOWN), "remove what is right by now from the list"


def test_the_cases_are_enough(found: list[Outcome]) -> None:
    assert len(found) >= 80
    assert sum(one.verdict == "right" for one in found) >= 0.85 * len(found)
