"""How far the analytic estimator is from the traces of decoders with adapters, sliding windows and caches.

    python benchmarks/decoders_accuracy.py

The peaks are recorded of transformers' and peft's own code on a simulated H200.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.decoder_cases import CASES  # noqa: E402 - found through the line above
from vramtui.core.estimate.devices import card  # noqa: E402 - as above
from vramtui.estimators.analytic import ANALYTIC  # noqa: E402 - as above

RECORDS = ROOT / "tests" / "golden" / "decoders.json"


def main() -> None:
    """Print one row for each case: true peaks in MiB, and the errors."""
    records = json.loads(RECORDS.read_text(encoding="utf-8"))
    print(f"{'':44}{'allocated':>10}{'error':>9}{'reserved':>10}{'error':>9}")
    for name, record in records.items():
        estimate = ANALYTIC.estimate(CASES[name].workload, card(CASES[name].job.get("device", "H200")))
        told = ""
        for key, guess in (("peak_allocated", estimate.allocated), ("peak_reserved", estimate.reserved)):
            told += f"{record[key] / (1 << 20):>10.1f}{guess / record[key] - 1:>+9.2%}"
        print(f"{name:44}{told}")


if __name__ == "__main__":
    main()
