"""The dashboard for half an hour on a host where everything goes wrong at random: does it live, grow or stutter?

python benchmarks/soak.py [--minutes 30] [--seed 1] [--no-keys] [--verbose]

GPUs are lost and come back, calls fail and hang, processes come and go by the hundred under pids that are used again,
memory and names change, and somebody leans on the keyboard. It reports crashes, the growth of the program's memory
after the first minutes, and the frames that came latest (at least the time is drawn every second): how late, what CPU
time the program used since the frame before, and how long its threads and this command stood in the kernel's queue for
a processor meanwhile (/proc/PID/task/*/schedstat). What is left without the queue is the program's own lateness; on a
machine that is busy otherwise only that is its fault. While a call of the driver hangs the time goes on.

Exit: 0 if it did not crash, grew by 2 MB at most (told of more than five minutes) and was by itself never later than
0.5 s; else 1.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.dashboard import ours
from tests.installed.terminal import Terminal
from tests.stub.build import build
from tests.stub.world import (
    EVERY_CALL,
    GPU_IS_LOST,
    MEMORY_CALLS,
    MIB,
    NO_PERMISSION,
    NOT_AVAILABLE,
    NOT_SUPPORTED,
    PROCESS_CALLS,
    RESET_REQUIRED,
    UNKNOWN,
    StubGpu,
    StubProcess,
    World,
)
from vramtui.agent.nvml import PID_LIMIT

GPUS, PROCESSES = 8, 125
PIDS, ALIVE = 4000, 12  # that processes have, and of them those of programs that live
LATEST = 5  # frames that are told
INTERVAL = 1.0  # seconds between reads of the driver
MOST_GROWTH, MOST_LATE = 2e6, 0.5  # bytes, seconds
CTRL_C = "\x03"
INTERRUPTED = 130
EVERY = 0.2  # seconds between changes
CLOCK = 1.0  # seconds between drawings of the time
COUNT = 10.0  # seconds between looks at its memory
WARM_UP = 300.0  # seconds before growth counts, or a third of the time where that is less
# A pause ends at once: a dashboard that holds what it shows draws nothing, not even the time.
KEYS = (
    "\x1b[A",
    "\x1b[B",
    "]",
    "[",
    "\t",
    "\x1b[C",
    ">",
    "i\x1b",
    "p\x1b",
    "?\x1b",
    "  ",
    "/x\x1b",
    "!\x1b",
    "3",
    "1",
)
# Each of them once on either screen before any at random: what is loaded at its first use is no growth of later.
FIRST = (*KEYS[:-2], "3", *KEYS[:-2], "1")
CALLS = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", *MEMORY_CALLS, *PROCESS_CALLS, EVERY_CALL)
CODES = (NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, RESET_REQUIRED, UNKNOWN)


class Chaos:
    """A host that changes at random.

    Args:
        seed: the same seed makes the same host.
        state: the file that the stand-in driver reads.
        alive: processes of this host that use the cards too.
    """

    def __init__(self, seed: int, state: Path, alive: Sequence[int] = ()) -> None:
        self._chance = random.Random(seed)
        self._alive = alive
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
        self._first_pid = most + 1 if most + PIDS < PID_LIMIT else most - PIDS
        self._state = state
        self.world = World([StubGpu() for _ in range(GPUS)])
        for gpu in self.world.gpus:
            gpu.processes = [self._process() for _ in range(PROCESSES)]
        self.change()

    def change(self) -> None:
        """Let something happen on every card."""
        for gpu in self.world.gpus:
            self._move(gpu)
            if self._chance.random() < 0.05:
                self._heal_or_hurt(gpu)
            gpu.used = 4 * MIB + sum(max(0, row.used) for row in gpu.processes)
        self.world.write(self._state)

    @property
    def hangs(self) -> bool:
        """Whether a call about any card does not return for a while."""
        return any(gpu.hangs for gpu in self.world.gpus)

    def _move(self, gpu: StubGpu) -> None:
        chance = self._chance
        gpu.utilization = None if chance.random() < 0.02 else chance.randrange(101)
        gpu.temperature, gpu.power = chance.randrange(30, 95), chance.randrange(50_000, 700_000)
        for row in chance.sample(gpu.processes, min(20, len(gpu.processes))):
            row.used = NOT_AVAILABLE if chance.random() < 0.05 else chance.randrange(1, 900) * MIB
        if chance.random() < 0.3:
            gpu.processes = [row for row in gpu.processes if chance.random() < 0.9]
        while len(gpu.processes) < PROCESSES and chance.random() < 0.9:
            gpu.processes.append(self._process())

    def _heal_or_hurt(self, gpu: StubGpu) -> None:
        chance = self._chance
        if gpu.faults or gpu.hangs:
            gpu.faults.clear()
            gpu.hangs.clear()
        elif chance.random() < 0.3:
            gpu.hangs[chance.choice(CALLS)] = chance.uniform(0.1, 8.0)
        else:
            gpu.fail(chance.choice(CODES), chance.choice(CALLS))

    def _process(self) -> StubProcess:
        """Pids from a small range, so that they are used again; most are of nobody, some of programs that live. None is
        of a program that somebody else runs here: its command line would be read, and its model looked for.
        """
        chance = self._chance
        pid = self._first_pid + chance.randrange(PIDS)
        if self._alive and chance.random() < 0.05:
            pid = chance.choice(self._alive)
        return StubProcess(pid, chance.randrange(1, 900) * MIB)


@dataclass(frozen=True, order=True)
class Frame:
    """A frame that came late, all in seconds: what the program used and waited for since the one before."""

    late: float
    cpu: float
    queued: float
    queued_here: float
    hung: bool
    typed: str

    @property
    def own(self) -> float:
        """How late it would have been with a processor at hand."""
        return max(0.0, self.late - self.queued - self.queued_here)


class Stopwatch:
    """The frames that came latest, and what had been typed before them: at least the time is drawn every second."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._sent, self._drawn, self._before = terminal.bytes_sent, time.monotonic(), (0.0, 0.0, 0.0)
        self._queues: dict[Path, float] = {}
        self._before = self._spent()
        self._typed = self._typing = ""
        self._hung = False
        self.latest: list[Frame] = []
        self.own = {True: 0.0, False: 0.0}  # while the driver hung, and while it answered
        self.busiest = 0.0

    def happens(self, keys: str, *, hangs: bool) -> None:
        """These keys were sent, and whether the driver hangs."""
        self._typing += keys
        self._hung |= hangs

    def look(self, now: float) -> None:
        """See whether anything has come since the last look."""
        if self._terminal.bytes_sent == self._sent:
            return
        spent = self._spent()
        cpu, waited, here = (after - before for after, before in zip(spent, self._before, strict=True))
        frame = Frame(now - self._drawn - CLOCK, cpu, waited, here, self._hung, self._typed + self._typing)
        self.busiest = max(self.busiest, frame.cpu)
        self.own[frame.hung] = max(self.own[frame.hung], frame.own)
        self.latest = sorted((*self.latest, frame), reverse=True)[:LATEST]
        self._sent, self._drawn, self._before = self._terminal.bytes_sent, now, spent
        self._typed, self._typing, self._hung = self._typing, "", False

    def _spent(self) -> tuple[float, float, float]:
        """Seconds so far: CPU of the program, its threads' in the queue (they wait for each other), this command's."""
        with contextlib.suppress(psutil.Error, OSError):
            times = psutil.Process(pid := self._terminal.process.pid).cpu_times()
            # A thread that has ended is gone from /proc, and what it waited for stays waited for.
            self._queues |= queued(pid)
            here = max(queued(os.getpid()).values())
            return float(times.user + times.system), sum(self._queues.values()), here
        return self._before


def queued(pid: int) -> dict[Path, float]:
    """Seconds for which each thread of a process could have run and another had the processor."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[task] = int((task / "schedstat").read_text().split()[1]) / 1e9
    return found


@dataclass(frozen=True)
class Outcome:
    """What came of it; `screen` is the last one where it crashed."""

    minutes: float
    crashed: bool
    growth: float
    rss: float
    watch: Stopwatch
    screen: str

    @property
    def verdicts(self) -> tuple[tuple[str, bool | None], ...]:
        """What is promised, and whether it is kept; None where the time was too short to tell."""
        grown = self.growth <= MOST_GROWTH if self.minutes * 60 > WARM_UP else None
        return (
            ("no crash", not self.crashed),
            (f"memory grows by {MOST_GROWTH / 1e6:.0f} MB at most after the first minutes", grown),
            (f"no frame later than {MOST_LATE} s by itself", self.watch.own[False] <= MOST_LATE),
            ("nor while the driver hangs", self.watch.own[True] <= MOST_LATE),
        )


def soak(options: argparse.Namespace, folder: Path) -> Outcome:
    """Run, and say what came of it."""
    sleep = [sys.executable, "-S", "-c", f"import time; time.sleep({120 * options.minutes})"]
    sleeping = [subprocess.Popen(sleep) for _ in range(ALIVE)]
    try:
        return _soaked(options, folder, Chaos(options.seed, folder / "world", [one.pid for one in sleeping]))
    finally:
        for one in sleeping:
            one.kill()
            one.wait()


def _soaked(options: argparse.Namespace, folder: Path, chaos: Chaos) -> Outcome:
    chance = random.Random(options.seed)
    environment: dict[str, str | None] = {
        "LD_LIBRARY_PATH": str(build()),
        "VRAMTUI_STUB_STATE": str(folder / "world"),
        "VRAMTUI_CONFIG_DIR": str(folder / "config"),
        "VRAMTUI_DATA_DIR": str(folder / "data"),
    }
    begun = changed = counted = time.monotonic()
    over, warm = begun + 60 * options.minutes, begun + min(WARM_UP, 20 * options.minutes)
    first = last = 0.0
    waiting = list(FIRST)
    with Terminal(ours(INTERVAL).command, size=(160, 50), env=environment, keep=False) as terminal:
        terminal.wait_for("Processes")
        watch = Stopwatch(terminal)
        while (now := time.monotonic()) < over and terminal.process.poll() is None:
            watch.look(now)
            if now - changed >= EVERY:
                chaos.change()
                changed = now
                keys = ""
                if (waiting or chance.random() < 0.3) and not options.no_keys:
                    keys = waiting.pop(0) if waiting else chance.choice(KEYS)
                    terminal.send(keys)
                watch.happens(keys, hangs=chaos.hangs)
            if now - counted >= COUNT:
                counted = now
                last = terminal.usage()[1] if terminal.process.poll() is None else last
                first = first or (last if now >= warm else 0.0)
                terminal.skip()
                if options.verbose:
                    print(f"{now - begun:6.0f} s {last / 1e6:6.1f} MB, {watch.own[False]:.2f} s late by itself")
            time.sleep(0.02)
        code = terminal.process.poll()
        if code is None:
            terminal.send(CTRL_C)
        ended = terminal.ended()
        shown = terminal.text if ended != INTERRUPTED else ""
    crashed = code is not None or ended != INTERRUPTED
    return Outcome((time.monotonic() - begun) / 60, crashed, last - first, last, watch, shown)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-keys", action="store_true", help="nobody types")
    parser.add_argument("--verbose", action="store_true", help="a line every ten seconds")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="vramtui-") as folder:
        found = soak(options, Path(folder))
    print(f"{found.minutes:.1f} minutes, {GPUS} GPUs x {PROCESSES} processes, a change every {EVERY} s")
    print(f"memory growth      {found.growth / 1e6:+.1f} MB, to {found.rss / 1e6:.0f} MB")
    print(f"most CPU a frame   {found.watch.busiest:.2f} s")
    print("latest frames      late    own CPU   queued   (here)   late by itself   driver    after the keys")
    for frame in found.watch.latest:
        times = (frame.late, frame.cpu, frame.queued, frame.queued_here, frame.own)
        row = [f"{seconds:.2f} s" for seconds in times]
        driver = "hangs" if frame.hung else "answers"
        print("{:>23} {:>10} {:>8} {:>8} {:>16}   {:<9} {!r}".format(*row, driver, frame.typed))
    for promise, kept in found.verdicts:
        print(f"{'too short to tell' if kept is None else 'pass' if kept else 'FAIL'}  {promise}")
    if found.screen:
        print(found.screen)
    raise SystemExit(any(kept is False for _, kept in found.verdicts))


if __name__ == "__main__":
    main()
