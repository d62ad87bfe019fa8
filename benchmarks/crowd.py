"""A busy host that is not there: a stand-in driver with many processes that do live, whose memory wanders."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.installed.sleepers import sleepers
from tests.stub.build import build
from tests.stub.world import MIB, StubGpu, StubMig, StubProcess, World

MOST_PIDS = 1024


class Crowd:
    """`environment` makes a program see the host; `pids` are its processes.

    Args:
        folder: where the host is described, and where a program keeps its own files.
        gpus: how many cards.
        processes: how many processes on each.
        pids: of the living processes; with fewer than there are places each is on several cards.
    """

    def __init__(self, folder: Path, gpus: int, processes: int, pids: list[int]) -> None:
        self.pids = pids
        self._state = folder / "world"
        self._random = random.Random(0)
        self._over = threading.Event()
        self.world = World()
        for index in range(gpus):
            places = (pids[(index * processes + place) % len(pids)] for place in range(processes))
            rows = [StubProcess(pid, self._random.randrange(64, 128) * MIB, sm=self._busy(processes)) for pid in places]
            self.world.gpus.append(StubGpu(used=_used(rows), utilization=50, processes=rows))
        self.world.write(self._state)
        self.environment: dict[str, str | None] = {
            "LD_LIBRARY_PATH": str(build()),
            "VRAMTUI_STUB_STATE": str(self._state),
            "VRAMTUI_CONFIG_DIR": str(folder / "config"),
            "VRAMTUI_DATA_DIR": str(folder / "data"),
            "XDG_RUNTIME_DIR": str(folder),  # no job of this machine is to report itself here
            "PYTHONDONTWRITEBYTECODE": None,  # with it a program that pip has not compiled compiles itself each time
        }

    def whole_environment(self) -> dict[str, str]:
        """For a program that is started without a terminal."""
        return {name: value for name, value in {**os.environ, **self.environment}.items() if value is not None}

    def wander(self) -> None:
        """Let every process hold a little more or less, and every card be a little busier or warmer. A tenth of the
        processes work more or less than before.
        """
        for gpu in self.world.gpus:
            for row in gpu.processes:
                if self._random.randrange(10) == 0:
                    row.sm = self._busy(len(gpu.processes))
                row.used = max(16 * MIB, row.used + self._random.randrange(-2, 3) * MIB)
            gpu.used = _used(gpu.processes)
            gpu.utilization = self._random.randrange(40, 60)
            gpu.power = self._random.randrange(300_000, 400_000)
            gpu.temperature = self._random.randrange(50, 55)
        self.world.write(self._state)

    def _busy(self, processes: int) -> int:
        """A share of a card, in percent, that so many processes could all have."""
        return self._random.randrange(1 + 2 * 50 // processes)

    @contextmanager
    def wandering(self, period: float) -> Iterator[None]:
        """Wander every `period` seconds while the block runs; not at all where it is 0."""
        self._over.clear()
        mover = threading.Thread(target=self._move, args=(period,), daemon=True)
        if period:
            mover.start()
        try:
            yield
        finally:
            self._over.set()
            if period:
                mover.join()

    def _move(self, period: float) -> None:
        while not self._over.wait(period):
            self.wander()


@contextmanager
def crowd(gpus: int, processes: int) -> Iterator[Crowd]:
    """A host of that many cards with that many processes each; it is gone after the block."""
    count = min(gpus * processes, MOST_PIDS)
    commands = [(f"job-{number:04d}", "train.py", f"--rank={number}") for number in range(count)]
    with TemporaryDirectory(prefix="vramtui-") as folder, sleepers(commands) as pids:
        yield Crowd(Path(folder), gpus, processes, pids)


@contextmanager
def divided() -> Iterator[Crowd]:
    """A card cut into two MIG instances beside two whole ones, and a process on each but the last."""
    commands = [("python3", "train.py", f"--model=llama-{size}b") for size in (1, 3, 8)]
    with TemporaryDirectory(prefix="vramtui-") as folder, sleepers(commands) as pids:
        host = Crowd(Path(folder), 0, 0, pids)
        sizes = [9000 * MIB, 21000 * MIB, 62000 * MIB]
        instances = [
            StubMig("3g.71gb", "MIG-0a", 1, 0, 72704 * MIB, used=sizes[0], gpu_slices=3, compute_slices=3),
            StubMig("4g.71gb", "MIG-0b", 2, 0, 72704 * MIB, used=sizes[1], gpu_slices=4, compute_slices=4),
        ]
        rows = [StubProcess(pid, size, sm=40) for pid, size in zip(pids, sizes, strict=True)]
        rows[0].gpu_instance, rows[0].compute_instance = 1, 0
        rows[1].gpu_instance, rows[1].compute_instance = 2, 0
        cut = StubGpu(used=_used(rows[:2]), utilization=None, mig_mode=1, migs=instances, processes=rows[:2])
        whole = StubGpu(used=_used(rows[2:]), utilization=50, processes=rows[2:])
        host.world.gpus = [cut, whole, StubGpu(used=_used([]), utilization=0)]
        host.wander()
        yield host


def host_of(kind: str) -> AbstractContextManager[Crowd]:
    """`mig` is `divided`; another is GPUs x processes on each, as `8x64`."""
    gpus, _, processes = kind.partition("x")
    return divided() if kind == "mig" else crowd(int(gpus), int(processes))


def _used(rows: list[StubProcess]) -> int:
    return 4 * MIB + sum(row.used for row in rows)
