"""How far the analytic estimator is from the traces of encoders, encoder-decoders, UNets and diffusion transformers.

    python benchmarks/other_models_accuracy.py

The peaks are recorded of transformers' and diffusers' own code on a simulated H100.
"""

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.other_model_cases import CASES, MODELS  # noqa: E402 - found through the line above
from vramtui.core.estimate.devices import card  # noqa: E402 - as above
from vramtui.estimators.analytic import ANALYTIC  # noqa: E402 - as above

RECORDS = ROOT / "tests" / "golden" / "other_models.json"


def errors() -> dict[str, float]:
    """Relative error of the peak of allocated, by case."""
    records = json.loads(RECORDS.read_text(encoding="utf-8"))
    return {
        name: ANALYTIC.estimate(CASES[name].workload, card("H100")).allocated / record["peak_allocated"] - 1
        for name, record in records.items()
    }


def main() -> None:
    """Print one row for each model, and all of them together."""
    found = errors()
    print("| model | traces | median error | worst | where |")
    print("|---|---|---|---|---|")
    for model in (*MODELS, "all"):
        names = [name for name in found if model == "all" or name.startswith(f"{model}-")]
        worst = max(names, key=lambda name: abs(found[name]))
        median = statistics.median(abs(found[name]) for name in names)
        print(f"| {model} | {len(names)} | {median:.2%} | {found[worst]:+.2%} | {worst} |")


if __name__ == "__main__":
    main()
