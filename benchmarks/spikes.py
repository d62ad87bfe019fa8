"""How many short spikes the close looks find, in real time and over the stand-in library of the tests.

    python benchmarks/spikes.py [SPIKES [MILLISECONDS]]

A process on one of 8 GPUs with 64 processes each holds more for 250 ms (by default) at a random moment between two
samples a second apart; 50 times by default. Printed is in how many of them the peak was found, and how late looks were.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.stub.build import build  # noqa: E402 - the tests are no package: their folder is put in the path first
from tests.stub.world import MIB, World, crowd  # noqa: E402 - as above

STATE = "VRAMTUI_STUB_STATE"
INTERVAL = 1.0


def spike(world: World, state: Path, after: float, seconds: float) -> None:
    """Let the first process of GPU 0 hold more for a while."""
    row = world.gpus[0].processes[0]
    usual = row.used
    time.sleep(after)
    row.used = usual + 4096 * MIB
    world.write(state)
    time.sleep(seconds)
    row.used = usual
    world.write(state)


def measure(spikes: int, seconds: float, state: Path) -> None:
    """Make the spikes and print how many were found."""
    from vramtui.core.observation.history import History  # noqa: PLC0415 - as above
    from vramtui.core.observation.readings import process_key  # noqa: PLC0415 - as above
    from vramtui.monitor.fast_sampler import FastSampler  # noqa: PLC0415 - the library's path is set by now
    from vramtui.sources.nvml.source import NvmlSource  # noqa: PLC0415 - as above

    world, dice = crowd(8, 64), random.Random(4213)
    world.write(state)
    source = NvmlSource()
    sampler = FastSampler(source)
    first = source.read()
    gpu = first.gpus[0]
    key = process_key(first.host.name, gpu, gpu.processes[0])
    sampler.aim([key])
    sampler.start()
    found, by_samples, gaps = 0, 0, []
    for _ in range(spikes):
        before = source.read()
        history, plain = History(), History()
        maker = threading.Thread(
            target=spike, args=(world, state, dice.uniform(0.02, INTERVAL - seconds - 0.05), seconds)
        )
        sampler.pop_until(before.taken_at)
        history.add(before)
        plain.add(before)
        maker.start()
        time.sleep(INTERVAL)
        maker.join()
        after = source.read()
        looks = sampler.pop_until(after.taken_at)
        gaps += [look.interval for look in looks]
        history.add_looks(looks, after)
        for one in (history, plain):
            one.add(after)
        peak, without = history.tracks[key].peak, plain.tracks[key].peak
        found += peak is not None and peak.bytes > 4096 * MIB
        by_samples += without is not None and without.bytes > 4096 * MIB
    sampler.stop()
    print(f"found {found} of {spikes} spikes of {1e3 * seconds:.0f} ms; samples a second apart found {by_samples}")
    print(f"seconds between looks: median {statistics.median(gaps):.3f}, longest {max(gaps):.3f}")


def main() -> None:
    """Measure in a process of its own, that loads the stand-in as it would load the driver's library."""
    if STATE in os.environ:
        measure(int(sys.argv[1]), float(sys.argv[2]) / 1e3, Path(os.environ[STATE]))
        return
    asked = [*sys.argv[1:], *("50", "250")[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(build()), STATE: str(Path(folder) / "world")}
        subprocess.run([sys.executable, __file__, *asked], env=environment, check=True)


if __name__ == "__main__":
    main()
