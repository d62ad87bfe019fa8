"""What the probe costs a job, in instructions: the same steps with its hooks and without them, under valgrind.

    python benchmarks/probe_instructions.py [--steps 10] [--layers 16]

Instructions do not depend on what else the machine does, where time does. The job is that of `probe_overhead.py`; its
steps with and without the probe take turns in one process, and callgrind counts each turn by itself. The time that a
step takes under valgrind is some fifty times what it takes otherwise, and the probe's purse fills with time: it can
afford more of its work here than in a job at full speed, so the share is an upper bound.

Exit: 0 if every pair of turns is within the aim of 0.5 %, 1 if all are beyond it, 2 where they disagree (more --steps)
or valgrind or its headers are missing.
"""

import argparse
import ctypes
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

HERE = Path(__file__).parent
AIM_PERCENT = 0.5
PAIRS = 3
HOLDS, MISSED, UNDECIDED = 0, 1, 2
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def job(plan: dict[str, int], shim: Path) -> None:
    """The process that valgrind runs: turns with and without, each counted by itself."""
    import torch  # noqa: PLC0415 - not in the process that starts it

    from benchmarks.probe_job import WARM, Switch, Training, pretend  # noqa: PLC0415 - as above

    count = ctypes.CDLL(str(shim))
    torch.set_num_threads(1)
    pretend()
    training = Training(plan["layers"])
    training.steps(WARM)
    switch = Switch()
    training.steps(WARM)
    for turn in range(2 * PAIRS):
        probed = turn % 2 == 0
        if not probed:
            switch.off()
        count.count_begin()
        training.steps(plan["steps"])
        count.count_end()
        if not probed:
            switch.on()
    switch.end_job()


def counted(folder: Path) -> list[int]:
    """Instructions of each turn, in their order."""
    files = sorted(folder.glob("turns.*"), key=lambda path: int(path.suffix[1:]) if path.suffix[1:].isdigit() else 0)
    found = [_TOTAL.search(path.read_text()) for path in files]
    return [int(match[1]) for match in found if match is not None and int(match[1]) > 0]


def main() -> int:
    """Build the shim, run the job under valgrind, and print the share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    plan = {"steps": options.steps, "layers": options.layers}
    if options.job:
        job(plan, Path(options.job))
        return HOLDS
    if shutil.which("valgrind") is None:
        print("valgrind is not installed")
        return UNDECIDED
    from vramtui.probe.place import RUN, SOCKET  # noqa: PLC0415 - the job must not have it twice
    from vramtui.sources.probe_listener import ProbeListener  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory(prefix="vt") as place:
        folder = Path(place)
        os.environ["XDG_RUNTIME_DIR"] = place
        shim = folder / "count.so"
        build = ["cc", "-O1", "-shared", "-fPIC", "-o", str(shim), str(HERE / "probe_instructions.c")]
        if subprocess.run(build, check=False).returncode:
            print("valgrind's headers are missing")
            return UNDECIDED
        listener = ProbeListener(f"benchmark-{os.getpid()}", run="benchmark")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", SOCKET: str(listener.path), RUN: "benchmark"}
        callgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
        callgrind.append(f"--callgrind-out-file={folder / 'turns'}")
        again = [sys.executable, __file__, "--job", str(shim), "--steps", str(options.steps)]
        try:
            subprocess.run([*callgrind, *again, "--layers", str(options.layers)], env=environment, check=True)
        finally:
            listener.close()
        turns = counted(folder)
    share = [100 * (probed / bare - 1) for probed, bare in zip(turns[::2], turns[1::2], strict=True)]
    middle = statistics.median(share)
    found = {"instructions a step": statistics.median(turns[1::2]) / options.steps, "share in percent": middle}
    print(json.dumps({**found, "each": share}))
    within = [one <= AIM_PERCENT for one in share]
    return HOLDS if all(within) else UNDECIDED if any(within) else MISSED


if __name__ == "__main__":
    sys.exit(main())
