"""A day of a busy host in ten minutes: does the dashboard grow, or keep a thread, a file or a socket?

python benchmarks/day.py [--hours 24] [--every 10] [--gpus 8] [--processes 128] [--seed 1]

The dashboard runs without a terminal, with its poller, session, screens and a clock that this command turns: a sample
each second of the first hour, as by default, and one each `--every` seconds from then on. Processes come and go under
pids that are used again, windows are resized, screens opened, the machine sleeps for an hour and the driver is loaded
anew, which fails some reads and starts every card empty. Exit: 0 where at no hour after the first memory was more than
1 MB above it, and threads, files and sockets no more than then; else 1.
"""

import argparse
import asyncio
import gc
import os
import queue
import random
import sys
import threading
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.app.fakes import FixedPresets, RoundEstimator
from vramtui.app.app import Dashboard
from vramtui.app.services import StartOptions
from vramtui.cli.common.open_source import use_one_heap
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample

GIB = 1 << 30
HOUR = 3600.0
START = 1_800_000_000.0
MOST_GROWTH = 1e6  # bytes
KEYS = (
    *("down", "up", "i", "escape", "tab", "p", "escape", "question_mark", "escape"),
    *("3", "4", "1", "slash", "x", "escape", "exclamation_mark", "escape"),
)
SIZES = ((80, 24), (120, 35), (200, 50), (40, 10))
RELOAD, SLEEP = 0.002, 0.0005  # of all looks


class Host8:
    """The host, and the source that the poller reads: it answers with what `turn` made."""

    name = "day"

    def __init__(self, options: argparse.Namespace) -> None:
        self.at = START
        self._chance = random.Random(options.seed)
        self._options = options
        self._cards: list[dict[int, Process]] = [{} for _ in range(options.gpus)]
        self._made: queue.Queue[Sample | SourceFailed] = queue.Queue()
        self.idle = threading.Event()

    def now(self) -> float:
        """Seconds since the epoch, by this host."""
        return self.at

    def read(self) -> Sample:
        """Wait for the next look."""
        self.idle.set()
        made = self._made.get()
        if isinstance(made, SourceFailed):
            raise made
        return made

    def close(self) -> None:
        """Nothing is held."""

    def turn(self) -> None:
        """Let time go on and something happen."""
        chance = self._chance.random()
        step = 1.0 if self.at - START < HOUR else self._options.every
        self.at += HOUR if chance < SLEEP and step > 1.0 else step
        self.idle.clear()
        if chance > 1 - RELOAD:
            self._cards = [{} for _ in self._cards]
            self._made.put(SourceFailed("Driver/library version mismatch", "The driver is being loaded anew."))
        else:
            gpus = tuple(self._card(index) for index in range(len(self._cards)))
            self._made.put(Sample(taken_at=self.at, source="nvml", host=Host(name="day"), gpus=gpus))

    def _card(self, index: int) -> Gpu:
        rows, chance = self._cards[index], self._chance
        for pid in chance.sample(sorted(rows), min(2, len(rows))):
            del rows[pid]
        while len(rows) < self._options.processes:
            pid = chance.randrange(1, 32768)
            command = f"python train.py --run {chance.randrange(10**6)}"
            rows[pid] = Process(
                pid=pid, type="C", used_memory=GIB // 2, name="python", user="u", command=command, started_at=self.at
            )
        memory = Memory(total=140 * GIB, used=70 * GIB + chance.randrange(GIB), free=69 * GIB)
        busy = chance.randrange(101)
        return Gpu(
            index=index, uuid=f"GPU-{index}", name="H200", memory=memory, utilization=busy, processes=(*rows.values(),)
        )


def held() -> dict[str, int]:
    """What this process holds: bytes of memory, threads, files, sockets."""
    gc.collect()
    process = psutil.Process()
    files = os.listdir("/proc/self/fd")  # noqa: PTH208 - only how many
    return {
        "memory": process.memory_info().rss,
        "threads": process.num_threads(),
        "files": len(files),
        "sockets": len(process.net_connections("all")),
    }


async def live(options: argparse.Namespace) -> list[dict[str, int]]:
    """What it held after each hour."""
    host, chance = Host8(options), random.Random(options.seed)
    app = Dashboard(host, FixedPresets(), interval=0.001, start=StartOptions(estimator=RoundEstimator(), now=host.now))
    after: list[dict[str, int]] = []
    looks = pressed = 0
    async with app.run_test(size=(160, 50)) as pilot:
        while (hours := (host.at - START) / HOUR) < options.hours:
            host.turn()
            while not host.idle.is_set():  # noqa: ASYNC110 - it is set by a thread; another to wait for it would count
                await asyncio.sleep(0.001)
            looks += 1
            if looks % 5 == 0:
                await pilot.pause()
            if looks % 40 == 0:
                await pilot.resize_terminal(*chance.choice(SIZES))
            if looks % 15 == 0:
                await pilot.press(KEYS[pressed % len(KEYS)])
                pressed += 1
            if hours >= (1 + after[-1]["hours"] if after else 1):
                after.append({"hours": int(hours), "looks": looks, **held()})
                print(", ".join(f"{name} {count:,}" for name, count in after[-1].items()), flush=True)
    return after


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two looks after the first hour")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=128, help="on each")
    parser.add_argument("--seed", type=int, default=1)
    use_one_heap()
    first, *later = asyncio.run(live(parser.parse_args()))
    more = {name: max(hour[name] for hour in later) - first[name] for name in ("memory", "threads", "files", "sockets")}
    print("above the first hour:", ", ".join(f"{name} {count:+,}" for name, count in more.items()))
    raise SystemExit(more.pop("memory") > MOST_GROWTH or any(count > 0 for count in more.values()))


if __name__ == "__main__":
    main()
