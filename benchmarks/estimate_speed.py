"""How long one analytic estimate takes the processor, for every shipped preset that is known by its shapes:
`python benchmarks/estimate_speed.py`.
"""

import sys
import time

from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TorchModel
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.library import PresetLibrary

ROUNDS = 50


def main() -> int:
    """Print the median of each and the slowest; 1 when one takes longer than 2 ms or torch was imported."""
    device = card("H200")
    slowest = 0.0
    library = PresetLibrary()
    for found in map(library.get, library.keys()):
        if isinstance(found.preset.model, TorchModel):
            continue
        workload = found.preset.workload
        times = []
        for _ in range(ROUNDS):
            start = time.thread_time()
            ANALYTIC.estimate(workload, device)
            times.append(time.thread_time() - start)
        median = sorted(times)[ROUNDS // 2]
        slowest = max(slowest, median)
        print(f"{found.key:40} {median * 1e3:6.2f} ms")
    print(f"{'slowest':40} {slowest * 1e3:6.2f} ms; torch imported: {'torch' in sys.modules}")
    return int(slowest > 0.002 or "torch" in sys.modules)


if __name__ == "__main__":
    raise SystemExit(main())
