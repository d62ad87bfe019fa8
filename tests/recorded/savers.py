"""Jobs that save memory (Liger's kernels, bitsandbytes, Adafactor, selective checkpointing) beside their estimates.

`benchmarks/saver_jobs.py` runs them on a CUDA build: public decoders cut to six blocks.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.golden_workloads import RECORDED
from tests.recorded.architectures import preset_from
from vramtui.core.estimate.devices import card
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.simulated import SIMULATED

GOLDEN = Path(__file__).parents[1] / "golden" / "savers.json"


def compared() -> Iterator[tuple[str, float, float]]:
    """Name, and by how much the analytic estimate is off of allocated, and the simulated one of reserved."""
    for job in json.loads(GOLDEN.read_text(encoding="utf-8")):
        model = msgspec.to_builtins(preset_from(job["config"]).model)
        run = {"torch": RECORDED, **job["run"]}
        workload, device = msgspec.convert({"model": model, "run": run}, Workload), card(job["device"])
        allocated = ANALYTIC.estimate(workload, device).allocated
        reserved = SIMULATED.estimate(workload, device).reserved or 0
        yield job["name"], allocated / job["allocated"] - 1, reserved / job["reserved"] - 1
