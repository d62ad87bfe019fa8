"""What longer intervals save: the dashboard with each of them, side by side on one busy stand-in host.

python benchmarks/intervals.py [--intervals 1,10] [--seconds 120] [--gpus 8 --processes 64] [--runs 3]

Side by side, so that whatever else the machine does is the same for all; the last column is the processor's time beside
that of the first interval. It tells something on a quiet machine alone: who wakes every ten seconds finds its caches
filled with what others did, and takes up to a fifth longer for the same work.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crowd import Crowd, crowd
from benchmarks.dashboard import GPU, PATIENCE, ours, size_of
from tests.installed.terminal import Terminal

# Seconds: ten samples of the usual longest interval. What a start does once takes the first few of them, more of them
# where the machine is busy.
SETTLE = 100.0


def processor_seconds(pid: int) -> float:
    """What all threads of a process have run; the usual count of ticks is of hundredths of a second."""
    stats = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(stat.split()[0]) for stat in stats) / 1e9


def measure(host: Crowd, intervals: list[float], size: tuple[int, int], seconds: float) -> list[float]:
    """The share of a core that each takes over `seconds`."""
    terminals = [
        Terminal(ours(interval).command, size=size, env=host.environment, keep=False, whole_frames=False)
        for interval in intervals
    ]
    try:
        for terminal in terminals:
            terminal.wait(lambda screen: GPU.search(screen) is not None, "a GPU on the screen", PATIENCE)
        time.sleep(SETTLE)
        before = [processor_seconds(terminal.process.pid) for terminal in terminals]
        time.sleep(seconds)
        after = [processor_seconds(terminal.process.pid) for terminal in terminals]
    finally:
        for terminal in terminals:
            terminal.close()
    return [(end - begin) / seconds for begin, end in zip(before, after, strict=True)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", default="1,10", help="seconds, with commas between them")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long they are watched")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64, help="on each GPU")
    parser.add_argument("--size", type=size_of, default=(120, 40), help="COLUMNSxROWS")
    parser.add_argument("--runs", type=int, default=1, help="medians of so many are printed")
    options = parser.parse_args()
    intervals = [float(word) for word in options.intervals.split(",")]
    with crowd(options.gpus, options.processes) as host, host.wandering(1.0):
        runs = [measure(host, intervals, options.size, options.seconds) for _ in range(options.runs)]
    print(f"{'interval':>10}{'processor':>12}{'beside the first':>20}")
    for at, interval in enumerate(intervals):
        share, beside = median(run[at] for run in runs), median(run[at] / run[0] for run in runs)
        print(f"{interval:>8g} s{100 * share:>10.3f} %{beside:>20.3f}")


if __name__ == "__main__":
    main()
