"""The dashboard for half an hour on a host where everything goes wrong at random: does it live, grow or stutter?

python benchmarks/soak.py [--minutes 30] [--seed 1] [--no-keys] [--verbose]

GPUs are lost and come back, calls fail and hang, processes come and go by the hundred under pids that are used again,
memory and names change, and somebody leans on the keyboard. It reports crashes, the growth of the program's memory
after the first minutes, how late a frame was at most (at least the time is drawn every second), and how much CPU time
the program itself used before it: on a machine that is busy otherwise, only that tells whose fault it was.
"""

import argparse
import contextlib
import random
import sys
import time
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

GPUS, PROCESSES = 8, 125
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
    """

    def __init__(self, seed: int, state: Path) -> None:
        self._chance = random.Random(seed)
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
        """Pids from a small range, so that they are used again; most are of nobody, some of programs that live."""
        return StubProcess(self._chance.randrange(1, 4000), self._chance.randrange(1, 900) * MIB)


class Stopwatch:
    """How late a frame was at most, and what had been typed before it: at least the time is drawn every second.

    `busiest` is the most CPU time that the program itself used between two frames. On a machine that does other things
    as well a frame is late because the program gets no processor; what it did meanwhile tells which it was.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._program = psutil.Process(terminal.process.pid)
        self._sent, self._drawn, self._used = terminal.bytes_sent, time.monotonic(), 0.0
        self._used = self._cpu()
        self._typed = self._typing = ""
        self.worst, self.after, self.used_then, self.busiest = 0.0, "", 0.0, 0.0

    def typed(self, keys: str) -> None:
        """These keys were sent."""
        self._typing += keys

    def look(self, now: float) -> None:
        """See whether anything has come since the last look."""
        if self._terminal.bytes_sent == self._sent:
            return
        late, used = now - self._drawn - CLOCK, self._cpu()
        self.busiest = max(self.busiest, used - self._used)
        if late > self.worst:
            self.worst, self.after, self.used_then = late, self._typed + self._typing, used - self._used
        self._sent, self._drawn, self._used = self._terminal.bytes_sent, now, used
        self._typed, self._typing = self._typing, ""

    def _cpu(self) -> float:
        with contextlib.suppress(psutil.Error):
            times = self._program.cpu_times()
            return float(times.user + times.system)
        return self._used


def soak(options: argparse.Namespace, folder: Path) -> dict[str, float | str]:
    """Run, and say what came of it."""
    chaos, chance = Chaos(options.seed, folder / "world"), random.Random(options.seed)
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
    with Terminal(ours(1.0).command, size=(160, 50), env=environment, keep=False) as terminal:
        terminal.wait_for("Processes")
        watch = Stopwatch(terminal)
        while (now := time.monotonic()) < over and terminal.process.poll() is None:
            watch.look(now)
            if now - changed >= EVERY:
                chaos.change()
                changed = now
                if (waiting or chance.random() < 0.3) and not options.no_keys:
                    watch.typed(keys := waiting.pop(0) if waiting else chance.choice(KEYS))
                    terminal.send(keys)
            if now - counted >= COUNT:
                counted = now
                last = terminal.usage()[1] if terminal.process.poll() is None else last
                first = first or (last if now >= warm else 0.0)
                terminal.skip()
                if options.verbose:
                    print(f"{now - begun:6.0f} s {last / 1e6:6.1f} MB, {watch.worst:.2f} s late after {watch.after!r}")
            time.sleep(0.02)
        code = terminal.process.poll()
        if code is None:
            terminal.send(CTRL_C)
        ended = terminal.ended()
        shown = terminal.text if ended != INTERRUPTED else ""
    return {
        "minutes": (time.monotonic() - begun) / 60,
        "crashes": int(code is not None or ended != INTERRUPTED),
        "growth_bytes": last - first,
        "rss_bytes": last,
        "worst_frame_seconds": watch.worst,
        "worst_frame_after": watch.after,
        "worst_frame_cpu_seconds": watch.used_then,
        "busiest_frame_cpu_seconds": watch.busiest,
        "screen": shown,
    }


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
    print(f"{found['minutes']:.1f} minutes, {GPUS} GPUs x {PROCESSES} processes, a change every {EVERY} s")
    print(f"crashes            {found['crashes']}")
    print(
        f"memory growth      {float(found['growth_bytes']) / 1e6:+.1f} MB, to {float(found['rss_bytes']) / 1e6:.0f} MB"
    )
    print(f"worst frame        {found['worst_frame_seconds']:.2f} s late, after {found['worst_frame_after']!r}")
    print(f"its own CPU then   {found['worst_frame_cpu_seconds']:.2f} s since the frame before")
    print(f"most CPU a frame   {found['busiest_frame_cpu_seconds']:.2f} s")
    if found["screen"]:
        print(found["screen"])


if __name__ == "__main__":
    main()
