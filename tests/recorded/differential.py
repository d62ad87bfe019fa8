"""Random training scripts and their true peaks, and what the tracer says of them now."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "differential.json"
RUNNER = Path(__file__).parents[2] / "benchmarks" / "differential_run.py"
Answer = list[int] | str


def script_peaks(scripts: Sequence[tuple[str, str]], python: Sequence[str], *options: str) -> list[Answer]:
    with tempfile.TemporaryDirectory() as folder:
        source, peaks = Path(folder) / "scripts.json", Path(folder) / "peaks.json"
        source.write_text(json.dumps(scripts), encoding="utf-8")
        command = [*python, str(RUNNER), str(source), str(peaks), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found: list[Answer] = json.loads(peaks.read_text(encoding="utf-8"))
    return found


def traced_peaks(scripts: Sequence[tuple[str, str]]) -> list[Answer]:
    return script_peaks(scripts, [sys.executable])
