"""Servers, files and pipelines of public reports: every case is answered, and those that are not right are named."""

from tests.recorded.cases import FOLDER, outcomes
from vramtui.core.base import toml

# What is not right today, with the reason, and what an answer states a range for; only a new case may join a list.
KNOWN, RANGES = toml.loads((FOLDER / "known.toml").read_text(encoding="utf-8")).values()


def test_each_case_is_right_or_known() -> None:
    found = {f"{one.kind}/{one.name}": one for one in outcomes(("serving", "llamacpp", "diffusion"))}
    off = {name: one for name, one in found.items() if one.verdict != ("in range" if name in RANGES else "right")}
    assert {name: one for name, one in off.items() if name not in KNOWN} == {}
    assert sorted(off) == sorted(KNOWN), "remove what is right by now from the list"
    assert len(found) >= 80
    assert sum(one.verdict == "right" for one in found.values()) >= 0.85 * len(found)
