"""What the probe costs a job, in instructions: the same steps with its hooks and without them, under valgrind.

    python benchmarks/probe_instructions.py [--steps 120] [--layers 8]

Instructions do not depend on what else the machine does, where time does. The job is that of `probe_overhead.py` with
two rows of data (valgrind takes long for multiplications, and what the probe costs does not go by them). One process
runs half as many steps bare, then so many with the probe six times, then half as many bare again; callgrind counts
each turn by itself. The first probed turn spends what the probe may take at the beginning of a job and is shown, but
not part of the share. The probe's budget and its messages go by time, and valgrind makes a step many times slower: the
probe's clock is the process's CPU time divided by that factor, which is measured first. Python's garbage collector
leaves alone what is there when the turns begin, torch and the probe's modules; else the passes over them would decide.

Exit: 0 if the share is within the aim of 0.5 %, 1 if not, 2 if the bare turns differ by more than a tenth of the aim,
or valgrind or its headers are missing.
"""

import argparse
import ctypes
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1]))

HERE = Path(__file__).parent
AIM_PERCENT = 0.5
HOLDS, MISSED, UNDECIDED = 0, 1, 2
PROBED = 6  # turns with the probe
ROWS = 2
_TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)


def native(layers: int) -> float:
    """Seconds of CPU time that a step takes at full speed: the least of a few."""
    import torch  # noqa: PLC0415 - not in the process that starts it

    from benchmarks.probe_job import WARM, Training  # noqa: PLC0415 - as above

    torch.set_num_threads(1)
    training, found = Training(layers, ROWS), []
    for _ in range(20):
        begun = time.process_time()
        training.steps(WARM)
        found.append((time.process_time() - begun) / WARM)
    return min(found)


def slow_down(factor: float) -> None:
    """Let the probe's clock be the CPU time that the process would have used at full speed."""
    from vramtui.probe import session  # noqa: PLC0415 - as above

    def now() -> float:
        return time.process_time() / factor

    def now_ns() -> int:
        return int(time.process_time_ns() / factor)

    clock = SimpleNamespace(monotonic=now, time=time.time, sleep=lambda seconds: time.sleep(seconds * factor))
    for module, name, value in (
        (session, "perf_counter_ns", now_ns),
        (session, "time", clock),
    ):
        setattr(module, name, value)


def leave_alone() -> None:
    """What is there now is not looked through by the garbage collector again."""
    gc.collect()
    gc.freeze()


def job(plan: argparse.Namespace) -> None:
    """The process that valgrind runs: turns without, with and without, each counted by itself."""
    import torch  # noqa: PLC0415 - as above

    from benchmarks.probe_job import WARM, Switch, Training, pretend  # noqa: PLC0415 - as above

    count = ctypes.CDLL(plan.job)

    def turn(steps: int) -> float:
        count.turn_begins()
        begun = time.process_time()
        training.steps(steps)
        taken = time.process_time() - begun
        count.turn_ends()
        return taken / steps

    # A job on a GPU has threads; in a process that has none glibc leaves out its locks, until the probe's own comes.
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    torch.set_num_threads(1)
    pretend()
    training = Training(plan.layers, ROWS)
    training.steps(WARM)
    count.count_begin()
    training.steps(WARM)
    leave_alone()
    slow_down(turn(plan.steps // 2) / plan.native)
    switch = Switch()
    leave_alone()
    for _ in range(PROBED):
        turn(plan.steps)
    switch.off()
    turn(plan.steps // 2)
    switch.on()
    switch.end_job()


def measured(plan: argparse.Namespace, folder: Path) -> list[int]:
    """Run the job under valgrind, with somebody who hears the probe: instructions of each turn."""
    from vramtui.probe.socket_dir import RUN, SOCKET  # noqa: PLC0415 - the job must not have it twice
    from vramtui.sources.probe_listener import ProbeListener  # noqa: PLC0415 - as above

    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    listener = ProbeListener(f"benchmark-{os.getpid()}", run="benchmark")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", SOCKET: str(listener.path), RUN: "benchmark"}
    again = [sys.executable, __file__, "--steps", str(plan.steps), "--layers", str(plan.layers)]
    step = subprocess.run([*again, "--job", "native"], env=environment, check=True, capture_output=True, text=True)
    plan.native = float(step.stdout)
    again += ["--job", plan.job, "--native", str(plan.native)]
    callgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
    try:
        subprocess.run([*callgrind, f"--callgrind-out-file={folder / 'turns'}", *again], env=environment, check=True)
    finally:
        listener.close()
    heard = [job.beat.step for job in listener.jobs() if job.beat is not None]
    if heard != [PROBED * plan.steps]:
        raise SystemExit(f"the listener heard of {heard} steps, so this measured something else")
    found = [_TOTAL.search((folder / f"turns.{number + 1}").read_text()) for number in range(PROBED + 2)]
    return [int(match[1]) for match in found if match is not None]


def main() -> int:
    """Build the shim, run the job under valgrind, and print the share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    parser.add_argument("--native", type=float, default=0.0, help=argparse.SUPPRESS)
    plan = parser.parse_args()
    if plan.job:
        print(native(plan.layers)) if plan.job == "native" else job(plan)
        return HOLDS
    if shutil.which("valgrind") is None:
        print("valgrind is not installed")
        return UNDECIDED
    with tempfile.TemporaryDirectory(prefix="vt") as place:
        plan.job = str(Path(place) / "count.so")
        build = ["cc", "-O1", "-shared", "-fPIC", "-o", plan.job, str(HERE / "probe_instructions.c")]
        if subprocess.run(build, check=False).returncode:
            print("valgrind's headers are missing")
            return UNDECIDED
        before, *probed, after = measured(plan, Path(place))
    bare = (before + after) / (plan.steps // 2 * 2)
    each = [100 * (count / plan.steps / bare - 1) for count in probed]
    share = sum(each[1:]) / len(each[1:])
    print(f"instructions of a step            {bare:,.0f}")
    print(f"a step at full speed              {plan.native * 1e3:.2f} ms of CPU time")
    print(f"the second bare turn has          {100 * (after / before - 1):+.3f} %")
    print(f"each probed turn ({plan.steps} steps)      {', '.join(f'{one:+.3f}' for one in each)} %")
    print(f"the probe adds, without the first {share:+.3f} % (aim: {AIM_PERCENT} %)")
    if share > AIM_PERCENT:
        return MISSED
    return HOLDS if abs(after / before - 1) <= AIM_PERCENT / 1000 else UNDECIDED


if __name__ == "__main__":
    sys.exit(main())
