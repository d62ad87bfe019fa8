"""Random scripts compared with the peaks of the CUDA build of PyTorch 2.13 on a stubbed driver.

The peaks are recorded; those marked `off` are known differences. A sample is run here, the same each time.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recorded.differential import traced_peaks

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[3]
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests" / "golden" / "differential.json").read_text(encoding="utf-8"))
SAMPLE = 24


@pytest.mark.timeout(300)
def test_traced_allocated_is_equal_to_the_byte() -> None:
    """A sample of them in forks of one process, which loads torch once."""
    sound = [case for case in CASES if not case["off"]]
    assert len(CASES) >= 300
    assert len(sound) >= 0.97 * len(CASES)
    sample = sound[:: len(sound) // SAMPLE]
    found = traced_peaks([(case["device"], case["script"]) for case in sample])
    wrong = [
        (case["script"], case["allocated"], got)
        for case, got in zip(sample, found, strict=True)
        if not isinstance(got, list) or got[0] != case["allocated"]
    ]
    assert wrong == []
