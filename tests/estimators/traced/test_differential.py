"""Random scripts traced beside the peaks of the CUDA build of PyTorch 2.13, on a stubbed driver.

`benchmarks/differential.py` makes and records them; those marked `off` are differences that are known and not mended.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[3]
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests" / "golden" / "differential.json").read_text(encoding="utf-8"))


@pytest.mark.timeout(300)
def test_traced_allocated_is_equal_to_the_byte(tmp_path: Path) -> None:
    """All of them in forks of one process, which loads torch once."""
    scripts, peaks = tmp_path / "scripts.json", tmp_path / "peaks.json"
    sound = [case for case in CASES if not case["off"]]
    assert len(sound) >= 0.8 * len(CASES)
    scripts.write_text(json.dumps([[case["device"], case["script"]] for case in sound]), encoding="utf-8")
    runner = ROOT / "benchmarks" / "differential_run.py"
    subprocess.run([sys.executable, str(runner), str(scripts), str(peaks)], check=True, capture_output=True)
    found = json.loads(peaks.read_text(encoding="utf-8"))
    wrong = [
        (case["script"], case["allocated"], got)
        for case, got in zip(sound, found, strict=True)
        if not isinstance(got, list) or got[0] != case["allocated"]
    ]
    assert wrong == []
