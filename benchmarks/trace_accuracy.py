"""The tracer beside recorded runs: `python benchmarks/trace_accuracy.py [--only NAME] [--json]`.

Every run is traced in a process of its own on the card it was recorded on, and compared at the end of every phase.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.golden_runs import FIGURES, GOLDEN, recorded, request_for
from vramtui.core.base.errors import UserError
from vramtui.estimators.traced.process.results import TraceResult
from vramtui.estimators.traced.process.run import trace


def traced(name: str, folder: str, steps: int = 3) -> TraceResult:
    """Trace a recorded run on the card of `folder`."""
    return trace(request_for(name, folder, steps), timeout=300)


def compared(path: Path) -> dict[str, Any]:
    """One line of the table."""
    start = time.monotonic()
    true = recorded(path)
    line: dict[str, Any] = {"card": path.parent.name, "workload": path.stem, "rows": len(true)}
    try:
        result = traced(path.stem, path.parent.name)
    except UserError as error:
        return line | {"error": str(error)}
    rows = list(result.timeline)
    same = [(row["phase"], row["step"]) for row in true] == [(row.phase, row.step) for row in rows]
    equal = {
        figure: sum(row[figure] == getattr(mine, figure) for row, mine in zip(true, rows, strict=False)) if same else 0
        for figure in FIGURES
    }
    return line | {
        "equal": equal,
        "peak_allocated_error": _error(result.peak_allocated, max(row["peak_allocated"] for row in true)),
        "peak_reserved_error": _error(result.peak_reserved, max(row["peak_reserved"] for row in true)),
        "seconds": round(time.monotonic() - start, 1),
    }


def _error(mine: int, true: int) -> float:
    return (mine - true) / true


def _spoken(line: dict[str, Any]) -> str:
    head = f"{line['card']}  {line['workload']:36}"
    if "error" in line:
        return f"{head} {line['error']}"
    equal = " ".join(f"{line['equal'][figure]:3}" for figure in FIGURES)
    errors = f"{line['peak_allocated_error']:+10.4%} {line['peak_reserved_error']:+9.3%}"
    return f"{head} {line['rows']:4}  {equal}  {errors} {line['seconds']:6.1f} s"


def _exact(line: dict[str, Any]) -> bool:
    return "equal" in line and line["equal"]["allocated"] == line["rows"] and not line["peak_allocated_error"]


def main() -> int:
    """Print the table; 1 unless `allocated` and its peak are exact on at least nine in ten."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="runs whose name holds this")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    lines = []
    if not options.json:
        print("equal rows of: allocated, reserved, peak allocated, peak reserved; then the errors of both peaks")
    for path in sorted(GOLDEN.glob("*/*.json")):
        if options.only in path.stem:
            lines.append(compared(path))
            if not options.json:
                print(_spoken(lines[-1]), flush=True)
    exact = sum(map(_exact, lines))
    if options.json:
        print(json.dumps({"schema": 1, "exact": exact, "workloads": lines}))
    else:
        print(f"{exact} of {len(lines)} equal in every phase and at the peak of allocated")
    return int(exact < 0.9 * len(lines))


if __name__ == "__main__":
    raise SystemExit(main())
