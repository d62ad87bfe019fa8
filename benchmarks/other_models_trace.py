"""Trace every case of `other_models.py` and write down its peak.

    python benchmarks/other_models_trace.py [NAME ...]

Needs transformers and, for UNets and FLUX, diffusers, neither of which the tests of the recorded peaks do. Names that
are given are traced anew; without any, those that have no record yet.
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.other_model_cases import CASES, Case  # noqa: E402 - found through the line above
from vramtui.core.estimate.devices import card  # noqa: E402 - as above
from vramtui.estimators.traced.process.results import TraceRequest  # noqa: E402 - as above
from vramtui.estimators.traced.process.run import trace  # noqa: E402 - as above

RECORDS = ROOT / "tests" / "golden" / "other_models.json"
DEVICE = "H100"


def traced(case: Case) -> dict[str, object]:
    """The peak of allocated in bytes, and the phase it falls in."""
    os.environ["JOB"] = json.dumps(case.job)
    jobs = str(Path(__file__).with_name("other_models_jobs.py"))
    result = trace(TraceRequest(path=jobs, function=case.job["phase"], device=card(DEVICE), steps=2))
    peak = max(row.peak_allocated for row in result.timeline)
    return {"peak_allocated": peak, "phase": result.peak_phase}


def main(names: list[str]) -> None:
    """Trace what is asked for, one after the other, and save after each."""
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    for name in names or [name for name in CASES if name not in records]:
        records[name] = traced(CASES[name])
        print(name, records[name])
        RECORDS.write_text(json.dumps({key: records[key] for key in sorted(records)}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
