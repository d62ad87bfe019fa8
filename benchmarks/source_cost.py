"""What one read of the NVML source costs, over the stand-in library of the tests.

    python benchmarks/source_cost.py [GPUSxPROCESSES ...]

For each size (8x64 and 16x1024 by default) it prints the first read, then the median of reads a second apart in which
every seventh process grew, in which nothing changed, and of reads 100 ms apart: wall time and CPU time in ms. The
stand-in's own work, reading its world anew where that changed, is part of it. Last comes what the close looks at every
GPU cost when they are taken ten times a second, with half of the processes growing between them: the CPU time of the
looking thread, in percent of a core.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.stub.build import build  # noqa: E402 - the tests are no package: their folder is put in the path first
from tests.stub.world import MIB, World, crowd  # noqa: E402 - as above

if TYPE_CHECKING:
    from vramtui.sources.nvml.source import NvmlSource

STATE = "VRAMTUI_STUB_STATE"
READS = 7
LOOKS = 50


def median_cost(read: Callable[[], object], before: Callable[[], None], pause: float) -> str:
    """Wall and CPU milliseconds of a read, as text; `before` and the pause come before each and do not count."""
    walls, cpus = [], []
    for _ in range(READS):
        before()
        time.sleep(pause)
        cpu, wall = time.process_time(), time.perf_counter()
        read()
        walls.append(1e3 * (time.perf_counter() - wall))
        cpus.append(1e3 * (time.process_time() - cpu))
    return f"{statistics.median(walls):6.1f} wall {statistics.median(cpus):6.1f} CPU"


def close_cost(source: "NvmlSource", grow: Callable[[], None]) -> str:
    """The CPU time of close looks at every process on every GPU, as text; writing the world does not count."""
    import pynvml  # noqa: PLC0415 - the library's path is set by now

    from vramtui.core.observation.readings import process_key  # noqa: PLC0415 - as above
    from vramtui.monitor.fast_sampler import INTERVAL, FastSampler  # noqa: PLC0415 - as above

    sample = source.read()
    keys = [process_key(sample.host.name, gpu, process) for gpu in sample.gpus for process in gpu.processes]
    sampler = FastSampler(source)
    one = [min(key for key in keys if key.gpu_uuid == sample.gpus[0].uuid)]
    told = []
    for aimed, what in ((one, "one process"), (keys, "all of them")):
        sampler.aim(aimed)
        sampler.step()
        spent = []
        for _ in range(LOOKS):
            grow()
            pynvml.nvmlDeviceGetCount()  # the stand-in reads its world anew: not what is measured
            cpu = time.thread_time()
            sampler.step()
            spent.append(time.thread_time() - cpu)
            sampler.pop_until(float("inf"))
        told.append(f"{what} {100 * statistics.mean(spent) / INTERVAL:.2f} %")
    return ", ".join(told)


def measure(gpus: int, processes: int, state: Path) -> None:
    """Print the costs at one size."""
    from vramtui.sources.nvml.source import NvmlSource  # noqa: PLC0415 - its library path is set by now

    world: World = crowd(gpus, processes)
    world.write(state)
    source = NvmlSource()
    begin = time.perf_counter()
    source.read()
    print(f"{gpus} x {processes}: ms per read")
    print(f"  first               {1e3 * (time.perf_counter() - begin):6.1f} wall")

    def grow(every: int = 7) -> None:
        for gpu in world.gpus:
            for process in gpu.processes[::every]:
                process.used += MIB
        world.write(state)

    print(f"  1 s, memory grows   {median_cost(source.read, grow, 0.95)}")
    print(f"  1 s, nothing new    {median_cost(source.read, lambda: None, 0.95)}")
    print(f"  100 ms, nothing new {median_cost(source.read, lambda: None, 0.1)}")
    print(f"  close looks, 10/s   {close_cost(source, partial(grow, 2))} of a core")


def main() -> None:
    """Measure each size in a process of its own, that loads the stand-in as it would load the driver's library."""
    sizes = sys.argv[1:] or ["8x64", "16x1024"]
    if STATE in os.environ:
        gpus, _, processes = sizes[0].partition("x")
        measure(int(gpus), int(processes), Path(os.environ[STATE]))
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(build()), STATE: str(Path(folder) / "world")}
        for size in sizes:
            subprocess.run([sys.executable, __file__, size], env=environment, check=True)


if __name__ == "__main__":
    main()
