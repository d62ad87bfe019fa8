"""Scripts on an emulated card and traced: `python -m benchmarks.scripts.dry_runs CHECKOUTS PYTHON`.

The list is dry_runs.toml. CHECKOUTS is as for run.py, PYTHON an interpreter with torch's CUDA build and the scripts'
packages; `--vllm` is another, of vLLM 0.19, for what asks for it. What came of each script is kept in `--kept FILE`
(tests/golden/emulated/dry_runs.json) and not run again; `--count N` ends after the first N of the list. A script that
is started as a module is not traced.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.releases import emulated, first_difference, traced
from benchmarks.scripts.run import HERE, checkout, make_data, with_numpy
from vramtui.core.base import toml

KEPT = HERE.parents[1] / "tests" / "golden" / "emulated" / "dry_runs.json"
OF_RUN = ("verdict", "exit_code", "steps", "allocated", "reserved", "bounded", "why")
OF_TRACE = ("verdict", "peak_allocated", "peak_reserved", "bounded", "emulated_better", "refusal")


def tried(script: dict[str, Any], root: Path, python: str) -> dict[str, Any]:
    """What both say of a script, bytes; `difference` where their peaks differ: the first step that ends otherwise."""
    make_data(script, root, python)
    alone = {key: value for key, value in script.items() if key != "torchrun"}
    ranks = ["--ranks", str(script["torchrun"])] if "torchrun" in script else []
    run = emulated(script, root, python)
    trace = {} if "module" in script else traced(alone | {"flags": ranks}, root, python)
    peaks = trace.get("peak_allocated"), trace.get("peak_reserved")
    differ = None not in peaks and "phases" in run and peaks != (run["allocated"], run["reserved"])
    if "refusal" in trace:
        trace["refusal"] = trace["refusal"].replace(f"{root}/", "").replace(python, "python")
    return {
        "name": script["name"],
        "run": {key: run[key] for key in OF_RUN if key in run},
        "trace": {key: trace[key] for key in OF_TRACE if key in trace},
        "difference": first_difference(trace, run) if differ else "",
    }


def main() -> None:
    """Try what has no answer yet, in the order of the list."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("checkouts", type=Path)
    asked.add_argument("python")
    asked.add_argument("--kept", type=Path, default=KEPT)
    asked.add_argument("--count", type=int)
    asked.add_argument("--vllm", help="an interpreter with vLLM 0.19")
    asked.add_argument("--numpy1", type=Path, help="a folder with the older NumPy that some scripts need")
    options = asked.parse_args()
    scripts = toml.loads((HERE / "dry_runs.toml").read_text(encoding="utf-8"))["script"]
    rows = json.loads(options.kept.read_text(encoding="utf-8")) if options.kept.exists() else []
    known = {row["name"] for row in rows}
    for script in (with_numpy(one, options.numpy1) for one in scripts[: options.count]):
        python = options.vllm if script.get("environment") == "vllm" else options.python
        if script["name"] in known or python is None:
            continue
        rows.append(tried(script, checkout(script, options.checkouts).resolve(), python))
        options.kept.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
