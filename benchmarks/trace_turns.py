"""Traces of two commits in turns: `python benchmarks/trace_turns.py OLD [NEW] [--only NAME] [--turns 3]`.

Each recorded training run (`tests/golden/training`) is traced by the code of either commit, one after the other, so
that both meet the same machine. Told are the seconds of the processor of a whole trace, its child and all imports
included (the fewest of all turns, which other work raises least), and whether every row of the timeline is equal to the
byte.
Exit code 1 where a timeline is another one.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
RUNS = sorted(f"{path.parent.name}/{path.stem}" for path in (HERE / "tests" / "golden" / "training").glob("*/*.json"))
_TRACE = """
import json, sys
from tests.recorded.golden_runs import request_for
from vramtui.estimators.traced.process.run import trace
import msgspec
folder, name = sys.argv[1].split("/")
result = trace(request_for(name, folder), timeout=600)
peaks = {"allocated": result.peak_allocated, "reserved": result.peak_reserved}
print(json.dumps({"timeline": msgspec.to_builtins(result.timeline)} | peaks))
"""


def unpack(commit: str, folder: Path) -> Path:
    """The files of `commit` in a folder below `folder`.

    Raises:
        CalledProcessError: there is no such commit.
    """
    into = folder / commit.replace("/", "_")
    into.mkdir()
    git = shutil.which("git") or "git"
    packed = subprocess.run([git, "-C", str(HERE), "archive", commit], capture_output=True, check=True)
    subprocess.run([shutil.which("tar") or "tar", "-x", "-C", str(into)], input=packed.stdout, check=True)
    return into


def measure(run: str, tree: Path) -> tuple[float, dict[str, Any]]:
    """Seconds of the processor that a trace of `run` by the code in `tree` takes, and what it says."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    done = subprocess.run(
        [sys.executable, "-c", _TRACE, run],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return used() - before, said


def main() -> int:
    """Print a line for each run and their sum; 1 where a timeline is another one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="HEAD")
    parser.add_argument("--only", action="append", help="runs whose name has this in it; may be given again")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    runs = [run for run in RUNS if any(part in run for part in options.only or [""])]
    sums, others = [0.0, 0.0], 0
    with tempfile.TemporaryDirectory() as folder:
        trees = [unpack(commit, Path(folder)) for commit in dict.fromkeys((options.old, options.new))]
        trees = [trees[0], trees[-1]]
        for run in runs:
            turns = [[measure(run, tree) for tree in trees] for _ in range(options.turns)]
            seconds = [min(turn[side][0] for turn in turns) for side in (0, 1)]
            equal = all(turn[0][1] == turn[1][1] for turn in turns)
            others += not equal
            sums = [total + one for total, one in zip(sums, seconds, strict=True)]
            share = seconds[1] / seconds[0] - 1
            said = "equal" if equal else "ANOTHER TIMELINE"
            print(f"{run:48} {seconds[0]:7.2f} s {seconds[1]:7.2f} s {share:+7.1%}  {said}", flush=True)
    if sums[0]:
        print(f"{len(runs)} runs{'':41} {sums[0]:7.2f} s {sums[1]:7.2f} s {sums[1] / sums[0] - 1:+7.1%}")
    return int(others > 0)


if __name__ == "__main__":
    raise SystemExit(main())
