"""What the probe costs a job: the same training steps with and without it.

    python benchmarks/probe_overhead.py [--steps 200] [--pairs 30] [--seconds 55] [--layers 16] [--json]

A job of so many optimizer steps (forward, backward, AdamW, zero_grad) of about 5 ms each, on one thread of the CPU,
whose `torch.cuda` says that it is in use and answers with figures of the size that a GPU's allocator gives: with the
probe's thread, its counters and a listener that reads everything. In one process two steps with the probe's hooks and
two without them take turns, so that whatever else the machine does meets both; so many steps of each are a pair of
jobs, for which the probe begins anew, and give one difference.
Printed: the median of the differences with an interval that holds it in 95 of 100 cases, in CPU time of the job's own
thread and in wall time; the CPU time of the probe's own calls, which other programs disturb less, but which leaves out
what a call does to the caches of what comes after it; and its memory: what its files and everything that they make
hold.

Exit: 0 if the whole interval of the CPU time is within the aim of 0.5 % and the memory within 1 MB, 1 if the interval,
the calls alone or the memory are beyond it, 2 if the interval is too wide to tell.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from vramtui.probe.socket_dir import RUN, SOCKET  # noqa: E402 - works from a checkout that is not installed
from vramtui.sources.probe_listener import ProbeListener  # noqa: E402 - as above

AIM_PERCENT = 0.5
AIM_KIB = 1e6 / 1024
BLOCK = 2
FEWEST_PAIRS = 6  # an interval from fewer holds the median in fewer cases
HOLDS, MISSED, UNDECIDED = 0, 1, 2


def demo_jobs(what: str, plan: dict[str, float]) -> Any:  # noqa: ANN401 - a document
    """What the job says, with a listener that reads all that its probe tells."""
    listener = ProbeListener(f"benchmark-{os.getpid()}", run="benchmark")
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    environment |= {SOCKET: str(listener.path), RUN: "benchmark"}
    try:
        job = [sys.executable, str(ROOT / "benchmarks" / "probe_job.py"), what, json.dumps(plan)]
        ended = subprocess.run(job, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        listener.close()
    told = json.loads(ended.stdout)
    heard = [job.beat.step for job in listener.jobs() if job.beat is not None]
    if heard != [plan["steps"]]:
        raise SystemExit(f"the listener heard of {heard} steps, so this measured something else")
    return told


def interval(values: list[float]) -> tuple[float, float]:
    """Between which of `values` the median of all such values lies in 95 of 100 cases: by order, whatever they are."""
    ordered, count = sorted(values), len(values)
    below, chance = 0, 0.0
    while True:
        chance += math.comb(count, below) / 2**count
        if 2 * chance > 0.05 or below >= count // 2:
            break
        below += 1
    cut = max(0, below - 1)
    return ordered[cut], ordered[count - 1 - cut]


def measured(plan: dict[str, float]) -> dict[str, float]:
    """All figures; times in ms, shares in percent, memory in KiB."""
    found = demo_jobs("pairs", plan)
    figures: dict[str, float] = {"pairs": len(found)}
    for place, name in enumerate(("CPU", "wall")):
        without = [pair["without"][place] / plan["steps"] / 1e6 for pair in found]
        shares = [100 * (pair["with"][place] / pair["without"][place] - 1) for pair in found]
        figures[f"step without, {name} (ms)"] = statistics.median(without)
        figures[f"difference, {name} (%)"] = statistics.median(shares)
        figures[f"  at least, {name} (%)"], figures[f"  at most, {name} (%)"] = interval(shares)
    inside = statistics.median(100 * pair["inside"] / pair["without"][0] for pair in found)
    figures["inside its calls, CPU (%)"] = inside
    figures["beginning, once (ms)"] = statistics.median(pair["began"] / 1e6 for pair in found)
    figures["held by the probe (KiB)"] = demo_jobs("held", plan) / 1024
    return figures


def verdict(figures: dict[str, float]) -> tuple[int, str]:
    """The exit code, and a sentence."""
    low, high = figures["  at least, CPU (%)"], figures["  at most, CPU (%)"]
    if figures["held by the probe (KiB)"] > AIM_KIB:
        return MISSED, "The probe holds more than 1 MB."
    if figures["inside its calls, CPU (%)"] > AIM_PERCENT or low > AIM_PERCENT:
        return MISSED, f"The probe costs more than {AIM_PERCENT} % of the job's CPU time."
    if high <= AIM_PERCENT and figures["pairs"] >= FEWEST_PAIRS:
        return HOLDS, f"Within {AIM_PERCENT} % of the job's CPU time and 1 MB."
    return UNDECIDED, f"Too noisy to tell whether it is within {AIM_PERCENT} %: more --pairs and --seconds, less load."


def main() -> int:
    """Measure, and print one table or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=55, help="after these no pair begins")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    plan = vars(parser.parse_args())
    as_json = plan.pop("json")
    with tempfile.TemporaryDirectory(prefix="vt") as runtime:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        figures = measured({**plan, "block": BLOCK})
    code, sentence = verdict(figures)
    if as_json:
        print(json.dumps({"schema": 2, **figures, "holds": code == HOLDS}))
    else:
        for name, figure in figures.items():
            print(f"{name:32} {figure:12.3f}")
        print(sentence)
    return code


if __name__ == "__main__":
    sys.exit(main())
