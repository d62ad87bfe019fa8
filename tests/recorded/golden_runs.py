"""The recorded training runs phase by phase, and what traces each."""

import json
from pathlib import Path
from typing import Any

from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import TraceRequest

GOLDEN = Path(__file__).parents[1] / "golden" / "training"
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "golden_training.py"
CARDS = {"a100": "A100", "h200": "H200"}
FIGURES = ("allocated", "reserved", "peak_allocated", "peak_reserved")


def recorded(path: Path) -> list[dict[str, Any]]:
    document = json.loads(path.read_text())
    rows = [dict(zip(document["columns"], row, strict=True)) for row in document["rows"]]
    return [row for row in rows if row["phase"] != "start"]


def request_for(name: str, folder: str, steps: int = 3) -> TraceRequest:
    return TraceRequest(path=str(SCRIPT), arguments=(name,), device=card(CARDS[folder]), steps=steps)
