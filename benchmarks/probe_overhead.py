"""What the probe costs a job: the same training steps with and without it.

    python benchmarks/probe_overhead.py [--steps 200] [--rounds 5] [--layers 12] [--json]

A job of so many optimizer steps (forward, backward, AdamW, zero_grad) of about 5 ms each, on the CPU, whose
`torch.cuda` says that it is in use and answers with figures of the size that a GPU's allocator gives: with the probe's
thread, its counters and a listener that reads everything. It is started afresh for each round, in turns with and
without. Printed: the best and the median time of a step of either, what lies between them, the time that the probe
says it took, and its memory: what its files and everything that they make hold, as tracemalloc counts it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from vramtui.cli.run_child import probed_environment  # noqa: E402 - works from a checkout that is not installed
from vramtui.sources.probe_listener import ProbeListener  # noqa: E402 - as above

MARK = "benchmark"
JOB = """
import gc, json, sys, time, tracemalloc
weigh = sys.argv[3] == "weigh"
import torch
if weigh:
    # torch has been imported: what is counted from here on is not its own.
    tracemalloc.start(24)
    import vramtui.probe
    vramtui.probe.start()
torch.set_num_threads(1)
torch.manual_seed(0)
steps, layers = int(sys.argv[1]), int(sys.argv[2])
kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes", "allocation",
         "segment", "active", "inactive_split", "oversize_allocations", "oversize_segments")
def stats(device):
    # As many entries as the real one makes anew for each call.
    made = {k: {p: {"current": 1 << 30, "peak": 1 << 31, "allocated": 1 << 40, "freed": 1 << 39}
            for p in ("all", "small_pool", "large_pool")} for k in kinds}
    made["num_alloc_retries"] = made["num_ooms"] = 0
    return made
torch.cuda.is_initialized = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.memory_stats_as_nested_dict = stats
torch.cuda.get_device_properties = lambda i: type("P", (), {"name": "fake", "total_memory": 1, "major": 9, "minor": 0})
torch._C._cuda_attach_out_of_memory_observer = lambda observer: None
model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(96, 96), torch.nn.GELU()) for _ in range(layers)))
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
data = torch.randn(128, 96)
def step():
    model(data).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
for _ in range(20): step()
times = []
for _ in range(steps):
    begin = time.perf_counter()
    step()
    times.append(time.perf_counter() - begin)
told = {"times": times, "spent": None, "held": None}
session = sys.modules.get("vramtui.probe.session" if weigh else "_vramtui_probe.session")
if session is not None:
    (found,) = [thing for thing in gc.get_objects() if type(thing) is session.Session]
    told["spent"] = found._allowance.spent
if weigh:
    def ours(trace):
        # The job's own backward passes run below a frame of hooks.py.
        files = [frame.filename.rsplit("/vramtui/probe/", 1)[-1] for frame in trace.traceback
                 if "/vramtui/probe/" in frame.filename]
        return bool(set(files) - {"hooks.py"}) or "/vramtui/probe/" in trace.traceback[-1].filename
    told["held"] = sum(trace.size for trace in tracemalloc.take_snapshot().traces if ours(trace))
told["resident"] = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
print(json.dumps(told))
"""


def one(steps: int, layers: int, *, probed: bool, weigh: bool = False) -> dict[str, object]:
    """One job; times in seconds, the probe's own time in ns, its memory in bytes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    listener = ProbeListener(f"benchmark-{os.getpid()}", run=MARK)
    try:
        if probed:
            environment = probed_environment(environment, str(listener.path), MARK)
        if weigh:
            environment["PYTHONPATH"] = str(ROOT)
        command = [sys.executable, "-c", JOB, str(steps), str(layers), "weigh" if weigh else "time"]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    finally:
        listener.close()
    heard = [job.beat.step for job in listener.jobs() if job.beat is not None]
    if heard != ([steps + 20] if probed else []):
        raise SystemExit(f"the listener heard of {heard} steps, so this measured something else")
    told: dict[str, object] = json.loads(ended.stdout)
    return told


def main() -> None:
    """Measure, and print one table or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vt") as runtime:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        figures = measured(chosen.steps, chosen.rounds, chosen.layers)
    if chosen.json:
        print(json.dumps({"schema": 1, **figures}))
        return
    for name, figure in figures.items():
        print(f"{name:32} {figure:12.3f}")


def measured(steps: int, rounds: int, layers: int) -> dict[str, float]:
    """All figures; times in ms, shares in percent, memory in KiB."""
    times: dict[bool, list[list[float]]] = {False: [], True: []}
    resident: dict[bool, list[int]] = {False: [], True: []}
    spent = []
    for number in range(rounds):
        # Which one is first changes, so that a machine that slows down does not favour either.
        for probed in (bool(number % 2), not number % 2):
            told = one(steps, layers, probed=probed)
            assert isinstance(told["times"], list)
            times[probed].append(told["times"])
            assert isinstance(told["resident"], int)
            resident[probed].append(told["resident"])
            if isinstance(told["spent"], int):
                spent.append(told["spent"] / 1e6)
    best = {probed: 1e3 * min(map(statistics.median, found)) for probed, found in times.items()}
    middle = {probed: 1e3 * statistics.median(map(statistics.median, found)) for probed, found in times.items()}
    job = 1e3 * statistics.median(sum(found) for found in times[True])
    held = one(steps, layers, probed=True, weigh=True)["held"]
    assert isinstance(held, int)
    return {
        "step without, best (ms)": best[False],
        "step with, best (ms)": best[True],
        "difference, best (%)": 100 * (best[True] / best[False] - 1),
        "step without, median (ms)": middle[False],
        "step with, median (ms)": middle[True],
        "difference, median (%)": 100 * (middle[True] / middle[False] - 1),
        "charged to the probe (ms)": statistics.median(spent),
        "charged to the probe (% of job)": 100 * statistics.median(spent) / job,
        "held by the probe (KiB)": held / 1024,
        "resident, difference (KiB)": statistics.median(resident[True]) - statistics.median(resident[False]),
    }


if __name__ == "__main__":
    main()
