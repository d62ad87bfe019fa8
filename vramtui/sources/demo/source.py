"""A believable host that is not there: what the dashboard shows without a driver, and what tests and pictures use.

Everything is a function of the seed and of the time since the start, so the same moment always looks the same.
"""

import random
import time
from collections.abc import Callable

from vramtui.core.base.units import GIB, MIB
from vramtui.core.observation.readings import Absence, Ancestors, Gpu, Host, Memory, Process, Sample
from vramtui.sources.demo.jobs import JOBS, DemoJob

TOTAL = 143771 * MIB  # nvidia-smi's figure for an H200
RESERVED = TOTAL - 150109880320  # what torch's total_memory leaves of it
LEFT_BEHIND = {3: 9324 * MIB}  # held on GPU 3 by nobody in the process list
BASELINE = 4 * MIB
HOST_MEMORY = 2015 * GIB


class DemoSource:
    """Four H200s with a training job, an inference server, smaller jobs and a remainder nobody owns.

    Args:
        clock: seconds since the epoch; the demo begins at its first value.
        seed: another seed, another noise.
        ahead: seconds that have already passed when the demo begins.
    """

    name = "demo"

    def __init__(self, clock: Callable[[], float] = time.time, seed: int = 0, ahead: float = 0.0) -> None:
        self._clock = clock
        self._seed = seed
        self._start = clock() - ahead

    def read(self, before: float = 0.0) -> Sample:
        """The demo's host now, or `before` so many seconds."""
        now = self._clock() - before
        elapsed = now - self._start
        gpus = tuple(self._gpu(index, elapsed) for index in range(4))
        return Sample(taken_at=now, source=self.name, host=self._host(elapsed), gpus=gpus)

    def close(self) -> None:
        """Nothing is held."""

    @property
    def began(self) -> float:
        """When the demo began, in seconds since the epoch."""
        return self._start

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return self._clock() - self._start

    @staticmethod
    def uuid(index: int) -> str:
        """The uuid of the GPU with that index."""
        return f"GPU-5eed{index:04d}-0000-4000-8000-00000000000{index}"

    def _host(self, elapsed: float) -> Host:
        noise = self._noise("host", elapsed)
        return Host(
            name="gpu01",
            driver_version="580.95.05",
            cuda_version="13.0",
            cpu_percent=round(23 + 4 * noise.random(), 1),
            memory_total=HOST_MEMORY,
            memory_available=HOST_MEMORY - 188 * GIB - noise.randrange(16) * 64 * MIB,
        )

    def _gpu(self, index: int, elapsed: float) -> Gpu:
        processes = tuple(
            self._process(job, elapsed) for job in JOBS if job.gpu == index and job.memory(elapsed) is not None
        )
        held = sum(process.used_memory or 0 for process in processes)
        used = BASELINE + held + LEFT_BEHIND.get(index, 0)
        noise = self._noise(f"gpu{index}", elapsed)
        busy = max((job.busy for job in JOBS if job.gpu == index and job.memory(elapsed) is not None), default=0)
        utilization = min(100, max(0, busy + noise.randrange(-3, 4))) if busy else 0
        return Gpu(
            index=index,
            uuid=self.uuid(index),
            name="NVIDIA H200",
            memory=Memory(total=TOTAL, used=used, reserved=RESERVED, free=TOTAL - RESERVED - used),
            processes=processes,
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

    def _process(self, job: DemoJob, elapsed: float) -> Process:
        run = job.run(elapsed)
        noise = self._noise(job.user + job.name, elapsed)
        return Process(
            pid=job.pid + run,
            type="C",
            used_memory=job.memory(elapsed),
            user=job.user,
            name=job.name,
            command=job.command,
            started_at=self._start + job.started(elapsed),
            cpu_percent=round(job.cpu * (0.97 + 0.06 * noise.random()), 1),
            host_memory=job.host_memory,
            sm_percent=min(100, max(0, job.busy + noise.randrange(-2, 3))),
            container=job.container,
            ancestors=Ancestors() if job.above is None else Ancestors(pids=job.above[:1], command=job.above[1]),
            state="running",
        )

    def _noise(self, what: str, elapsed: float) -> random.Random:
        return random.Random(f"{self._seed}:{what}:{int(elapsed)}")
