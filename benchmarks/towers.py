"""How far off image-text and audio-text models are with their towers running: estimates beside traces of small models.

python benchmarks/towers.py --trace >tests/golden/towers.jsonl     # minutes: `towers_job.py` and `sound_job.py` of each
python benchmarks/towers.py                                        # prints the table

Where a row has `cuda`, that is what the real PyTorch CUDA build allocated on a stubbed driver, with transformers' check
of how many tokens are images' taken out, which reads values that such a driver does not have.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.architectures import preset_from
from tests.golden_workloads import RECORDED
from vramtui.core.base.units import MIB
from vramtui.core.estimate.devices import card
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden" / "towers.jsonl"
WORDS = 64
ENVIRON = os.environ | {"PYTHONPATH": str(ROOT)}


def estimated(row: dict[str, Any]) -> int:
    """Bytes allocated at the peak, by the estimate of the row's config and run."""
    preset = preset_from(row["config"])
    key = "audio_tokens" if "audio_tokens" in row else "image_tokens"
    length = {"sequence_length": row[key] + WORDS, key: row[key]}
    run: TrainRun | InferRun = InferRun(torch=RECORDED, **length, new_tokens=1)
    if row["run"] == "train":
        run = TrainRun(torch=RECORDED, **length, precision="bf16", optimizer="adamw")
    estimate = ANALYTIC.estimate(Workload(model=preset.model, run=run), card("H100"))
    assert estimate.allocated is not None
    return estimate.allocated


def rows() -> list[dict[str, Any]]:
    """The recorded traces."""
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def off(row: dict[str, Any], of: str = "allocated") -> float:
    """How far the estimate is off, as a fraction of what was traced, or of another figure of the row."""
    return estimated(row) / int(row[of]) - 1


def traced() -> None:
    """Print a line for each model and run."""
    from benchmarks import sound_job, towers_job  # noqa: PLC0415 - need torch and transformers

    sound = {kind: sound_job.TOKENS[kind] * sound_job.CLIPS for kind in sound_job.CONFIGS}
    for job, key, tokens in ((towers_job, "image_tokens", towers_job.TOKENS), (sound_job, "audio_tokens", sound)):
        for kind in job.CONFIGS:
            config = json.loads(job.config_of(kind).to_json_string(use_diff=True))
            for run in ("infer", "train"):
                script = f"benchmarks/{job.__name__.rpartition('.')[2]}.py"
                command = [sys.executable, "-m", "vramtui", "trace", "--json", script, kind, run]
                done = subprocess.run(command, cwd=ROOT, env=ENVIRON, capture_output=True, check=True)
                peak = json.loads(done.stdout)["peak_allocated"]
                row = {"type": kind, "run": run, key: tokens[kind], "allocated": peak, "config": config}
                sys.stdout.write(json.dumps(row, sort_keys=True) + "\n")
                sys.stdout.flush()


def main() -> None:
    """Trace, or print the table."""
    if "--trace" in sys.argv:
        traced()
        return
    for row in rows():
        size = int(row["allocated"]) / MIB
        real = f"  beside CUDA's {off(row, 'cuda'):+.1%}" if "cuda" in row else ""
        sys.stdout.write(f"{row['type']:12} {row['run']:6} traced {size:8.1f} MiB  {off(row):+.1%}{real}\n")


if __name__ == "__main__":
    main()
