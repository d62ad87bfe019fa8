"""Trace every case of `decoders.py` and write down its peaks.

    python benchmarks/decoders_trace.py [NAME ...]

Needs transformers and, for adapters, peft, neither of which the tests of the recorded peaks do. Names that are given
are traced anew; without any, those that have no record yet.
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.decoder_cases import CASES  # noqa: E402 - found through the line above
from tests.other_model_cases import Case  # noqa: E402 - as above
from vramtui.core.estimate.devices import card  # noqa: E402 - as above
from vramtui.estimators.traced.process.results import TraceRequest  # noqa: E402 - as above
from vramtui.estimators.traced.process.run import trace  # noqa: E402 - as above

RECORDS = ROOT / "tests" / "golden" / "decoders.json"
DEVICE = "H200"


def traced(case: Case) -> dict[str, object]:
    """The peaks in bytes, and the phase in which that of allocated falls."""
    os.environ["JOB"] = json.dumps(case.job)
    jobs = str(Path(__file__).with_name("decoders_jobs.py"))
    device = card(case.job.get("device", DEVICE))
    result = trace(TraceRequest(path=jobs, function=case.job["phase"], device=device, steps=2))
    return {
        "peak_allocated": result.peak_allocated,
        "peak_reserved": result.peak_reserved,
        "phase": result.peak_phase,
    }


def main(names: list[str]) -> None:
    """Trace what is asked for, one after the other, and save after each."""
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    for name in names or [name for name in CASES if name not in records]:
        records[name] = traced(CASES[name])
        print(name, records[name], flush=True)
        RECORDS.write_text(json.dumps({key: records[key] for key in sorted(records)}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
