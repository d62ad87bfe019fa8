import re
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from benchmarks.scripts.__main__ import answer_of, errors_of, is_right
from benchmarks.scripts.data import MAKERS
from vramtui.core.base import toml

LIST = Path(__file__).resolve().parents[1] / "benchmarks" / "scripts" / "corpus.toml"
SCRIPTS = toml.loads(LIST.read_text(encoding="utf-8"))["script"]


def test_each_script_has_a_commit_and_data_and_a_document_without_a_peak_is_no_answer() -> None:
    assert len({script["name"] for script in SCRIPTS}) == len(SCRIPTS) >= 101
    assert sum("truth" in script for script in SCRIPTS) >= 79
    for script in SCRIPTS:
        assert re.fullmatch(r"[0-9a-f]{7,10}", script["commit"]), script["name"]
        assert script.get("data", "") in MAKERS, script["name"]
    failed = {"gpus": [{"result": {"peak_allocated": 0}, "error": "the job failed"}]}
    assert answer_of(failed) == {"refusal": "the job failed"}
    assert errors_of({"truth": [1.0, 2.0]}, {"refusal": "the job failed"}) is None


@pytest.mark.parametrize(
    ("allocated", "reserved", "right"),
    [(100.0, 200.0, True), (100.5, 206.0, True), (100.6, 200.0, False), (99.4, 200.0, False), (100.0, 207.0, False)],
)
def test_an_answer_is_right_within_its_limits_on_both_sides(allocated: float, reserved: float, *, right: bool) -> None:
    peaks = {
        "peak_allocated": int(allocated * 2**20),
        "peak_reserved": int(reserved * 2**20),
        "bounded": [],
        "warnings": [],
    }
    row = answer_of({"gpus": [{"result": peaks}]})
    errors = errors_of({"truth": [100.0, 200.0]}, row)
    assert errors is not None
    assert is_right(errors, [100.0, 200.0]) is right
