"""Image-text and audio-text models with their towers running: estimates beside traces of small models.

Where a row has `cuda`, that is what the real PyTorch CUDA build allocated on a stubbed driver, with transformers' check
of how many tokens are images' taken out, which reads values that such a driver does not have.
"""

import json
from pathlib import Path
from typing import Any

from tests.golden_workloads import RECORDED
from tests.recorded.architectures import preset_from
from vramtui.core.estimate.devices import card
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC

GOLDEN = Path(__file__).parents[1] / "golden" / "towers.jsonl"
WORDS = 64


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
