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

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.towers import off, rows
from vramtui.core.base.units import MIB

ROOT = Path(__file__).parent.parent
ENVIRON = os.environ | {"PYTHONPATH": str(ROOT)}


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
