"""How long a map of 100 x 100 values takes: `python benchmarks/plan_speed.py [PRESET ...]`."""

import sys
import time

from vramtui.core.devices import card
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.plan_grid import plan_grid
from vramtui.estimators.planner import Planner
from vramtui.presets.library import PresetLibrary

PRESETS = ("llama-3.1-8b-full", "llama-3.1-8b-lora", "gpt2-1.5b", "llama-3.1-70b-infer")
LIMIT = 3.0
BATCHES = range(1, 101)
LENGTHS = range(128, 12801, 128)


def main() -> int:
    """Print seconds for a map, and for the planner's answer with 8 cards; 1 when a map takes longer than 3 s."""
    device, library, slowest = card("H200"), PresetLibrary(), 0.0
    for key in sys.argv[1:] or PRESETS:
        workload = library.get(key).preset.workload
        start = time.perf_counter()
        plan_grid(ANALYTIC, workload, device, ("run.batch_size", BATCHES), ("run.sequence_length", LENGTHS))
        mapped = time.perf_counter() - start
        start = time.perf_counter()
        Planner(ANALYTIC, workload, card("A10"), gpus=8).plan()
        planned = time.perf_counter() - start
        slowest = max(slowest, mapped)
        print(f"{key:30} map {mapped:5.2f} s   plan for 8 cards {planned:5.2f} s")
    return int(slowest > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
