"""A believable made-up host, for the dashboard without a driver, for tests and for pictures.

Everything is a function of the seed and of the time since the start, so the same moment always looks the same.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.units import GIB, MIB
from vramtui.core.observation.readings import Absence, Ancestors, Gpu, Host, Memory, Process, Sample


class DemoStage(msgspec.Struct, frozen=True, array_like=True):
    """A stage of a job: `seconds` long, its memory goes from its last value to `end` MiB.

    A `ramp` grows evenly, as weights do while they load; otherwise all is taken at the beginning, as the caching
    allocator takes its segments.
    """

    name: str
    seconds: float
    end: int
    ramp: bool = False


class DemoJob(msgspec.Struct, frozen=True, kw_only=True):
    """One command on one GPU; with `pause` it starts again, as a new process, that many seconds after its end.

    Attributes:
        age: seconds it has been running when the demo begins.
        busy: GPU utilisation in per cent.
        cpu: host CPU in per cent of a core.
        host_memory: in GiB.
        container: name of its container or job.
        above: pid and command of the script that started it, if one did.
    """

    gpu: int
    pid: int
    user: str
    name: str
    command: str
    stages: tuple[DemoStage, ...]
    age: float
    busy: int
    cpu: float
    host_memory: int
    pause: float | None = None
    container: str | None = None
    above: tuple[int, str] | None = None

    @property
    def length(self) -> float:
        """Seconds from start to end of one run."""
        return sum(stage.seconds for stage in self.stages)

    def run(self, elapsed: float) -> int:
        """Return how often it has started again."""
        return 0 if self.pause is None else int((elapsed + self.age) // (self.length + self.pause))

    def started(self, elapsed: float) -> float:
        """Return when this run began, in seconds after the demo's start (negative: before it)."""
        period = 0.0 if self.pause is None else self.length + self.pause
        return self.run(elapsed) * period - self.age

    def memory(self, elapsed: float) -> int | None:
        """Return the bytes that it holds; None while it does not run."""
        into = elapsed - self.started(elapsed)
        memory = CONTEXT
        for stage in self.stages:
            if into < stage.seconds:
                grown = int((stage.end * MIB - memory) * into / stage.seconds) // MIB * MIB
                return memory + grown if stage.ramp else stage.end * MIB
            into -= stage.seconds
            memory = stage.end * MIB
        return memory if self.pause is None else None


CONTEXT = 752 * MIB  # a training job on an H200 takes 742 to 762 (tests/golden/card)
_TABLES = toml.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
JOBS = msgspec.convert(_TABLES["job"], tuple[DemoJob, ...])
TRAINING, SERVER, SMALL = JOBS[:3]


TOTAL = 143771 * MIB  # nvidia-smi's figure for an H200
RESERVED = TOTAL - 150109880320  # torch's total_memory is less
LEFT_BEHIND = {3: 9324 * MIB}  # held on GPU 3 by no process in the list
BASELINE = 4 * MIB
HOST_MEMORY = 2015 * GIB


class DemoSource:
    """Four H200s with a training job, an inference server, smaller jobs and memory that no process owns."""

    name = "demo"

    def __init__(self, clock: Callable[[], float] = time.time, seed: int = 0, ahead: float = 0.0) -> None:
        self._clock = clock
        self._seed = seed
        self._start = clock() - ahead

    def read(self, before: float = 0.0) -> Sample:
        """Return the demo's host now, or `before` so many seconds."""
        now = self._clock() - before
        elapsed = now - self._start
        gpus = tuple(self._gpu(index, elapsed) for index in range(4))
        noise = self._noise("host", elapsed)
        host = Host(
            name="gpu01",
            driver_version="580.95.05",
            cuda_version="13.0",
            cpu_percent=round(23 + 4 * noise.random(), 1),
            memory_total=HOST_MEMORY,
            memory_available=HOST_MEMORY - 188 * GIB - noise.randrange(16) * 64 * MIB,
            load=(46.2, 44.9, 45.1),
        )
        return Sample(taken_at=now, source=self.name, host=host, gpus=gpus)

    def close(self) -> None:
        """Close; there is nothing to release."""

    @property
    def began(self) -> float:
        """When the demo began, in seconds since the epoch."""
        return self._start

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    @staticmethod
    def uuid(index: int) -> str:
        return f"GPU-5eed{index:04d}-0000-4000-8000-00000000000{index}"

    def _gpu(self, index: int, elapsed: float) -> Gpu:
        processes = []
        for job in JOBS:
            memory = job.memory(elapsed)
            if job.gpu != index or memory is None:
                continue
            noise = self._noise(job.user + job.name, elapsed)
            process = Process(
                pid=job.pid + job.run(elapsed),
                type="C",
                used_memory=memory,
                user=job.user,
                name=job.name,
                command=job.command,
                started_at=self._start + job.started(elapsed),
                cpu_percent=round(job.cpu * (0.97 + 0.06 * noise.random()), 1),
                host_memory=job.host_memory * GIB,
                sm_percent=min(100, max(0, job.busy + noise.randrange(-2, 3))),
                container=job.container,
                ancestors=Ancestors() if job.above is None else Ancestors(pids=job.above[:1], command=job.above[1]),
                state="running",
            )
            processes.append(process)
        used = BASELINE + sum(process.used_memory or 0 for process in processes) + LEFT_BEHIND.get(index, 0)
        noise = self._noise(f"gpu{index}", elapsed)
        busy = max((job.busy for job in JOBS if job.gpu == index and job.memory(elapsed) is not None), default=0)
        utilization = min(100, max(0, busy + noise.randrange(-3, 4))) if busy else 0
        return Gpu(
            index=index,
            uuid=self.uuid(index),
            name="NVIDIA H200",
            memory=Memory(total=TOTAL, used=used, reserved=RESERVED, free=TOTAL - RESERVED - used),
            processes=tuple(processes),
            compute_capability=(9, 0),
            utilization=utilization,
            memory_utilization=utilization // 2,
            power_watts=round(76 + 5.8 * utilization + 6 * noise.random(), 1),
            power_limit_watts=700.0,
            temperature_celsius=29 + utilization // 3 + noise.randrange(2),
            sm_clock_mhz=1980 if utilization else 345,
            memory_clock_mhz=3201,
            pcie_generation=5,
            pcie_width=16,
            ecc_errors=0,
            throttle_reasons=("power cap",) if utilization > 97 else (),
            encoder_utilization=0,
            decoder_utilization=0,
            nvlink_sent=utilization * GIB,
            nvlink_received=utilization * GIB,
            pcie_sent=3 * utilization * MIB,
            pcie_received=8 * utilization * MIB,
            memory_repairs=0,
            repair_pending=False,
            xid_errors=(),
            pci_bus_id=f"00000000:{0x19 + 0x22 * index:02X}:00.0",
            absent={"fan_percent": Absence.NOT_SUPPORTED},
        )

    def _noise(self, what: str, elapsed: float) -> random.Random:
        return random.Random(f"{self._seed}:{what}:{int(elapsed)}")
