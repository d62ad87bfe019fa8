"""How long a map of 100 x 100 values takes, and the map of the Plan screen while it is looked at:
`python benchmarks/plan_speed.py [PRESET ...]`.
"""

import asyncio
import sys
import time
import tracemalloc

from vramtui.app.app import Dashboard
from vramtui.app.services import StartOptions
from vramtui.core.estimate.devices import card
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.planner.grid import plan_grid
from vramtui.estimators.planner.planner import Planner
from vramtui.presets.library import PresetLibrary
from vramtui.sources.demo import DemoSource

PRESETS = ("llama-3.1-8b-full", "llama-3.1-8b-lora", "gpt2-1.5b", "llama-3.1-70b-infer")
ON_SCREEN = ("gpt2-124m", "gpt2-1.5b", "llama-3.1-70b-fsdp", "llama-3.1-70b-qlora")
LIMIT, STALL = 3.0, 0.1
OTHERS = 3
BATCHES = range(1, 101)
LENGTHS = range(128, 12801, 128)


def main() -> int:
    """Print seconds for a map, and for the planner's answer with 8 cards; 1 when a map takes longer than 3 s."""
    device, library, slowest = card("H200"), PresetLibrary(), 0.0
    for key in sys.argv[1:] or PRESETS:
        workload = library.get(key).preset.workload
        start = time.perf_counter()
        plan_grid(ANALYTIC, workload, device, ("run.batch_size", BATCHES), ("run.sequence_length", LENGTHS))
        mapped = time.perf_counter() - start
        start = time.perf_counter()
        Planner(ANALYTIC, workload, card("A10"), gpus=8).plan()
        planned = time.perf_counter() - start
        slowest = max(slowest, mapped)
        print(f"{key:30} map {mapped:5.2f} s   plan for 8 cards {planned:5.2f} s")
    stalled = max(asyncio.run(on_screen(key, library)) for key in sys.argv[1:] or ON_SCREEN)
    return int(slowest > LIMIT or stalled > STALL)


async def on_screen(key: str, library: PresetLibrary) -> float:
    """Print how long the Plan screen's map and its advice take from the key on, the longest time in which the screen
    answered nothing while it made another map for another card, and the memory that maps of other axes add.

    Returns the longest stall in seconds.
    """
    app = Dashboard(source=DemoSource(), presets=library, start=StartOptions(preset=library.get(key)))
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause(0.5)
        start = time.perf_counter()
        app.action_show("plan")
        while app.parts.plan.model.heatmap is None or not app.parts.plan.model.heatmap.is_whole:
            await pilot.pause(0.005)
        whole = time.perf_counter() - start
        cells = app.parts.plan.model.heatmap.total
        while app.parts.plan.worker.is_busy:
            await pilot.pause(0.005)
        advised = time.perf_counter() - start
        watched = asyncio.create_task(_longest_gap())
        await asyncio.sleep(0.01)
        app.parts.plan.model.card = card("A10")
        app.draw()
        while app.parts.plan.worker.is_busy:
            await pilot.pause(0.005)
        watched.cancel()
        stall = await watched
        tracemalloc.start()
        for axis in app.parts.plan.model.axes[:OTHERS]:
            app.parts.plan.model.choose_axis(axis.name, across=True)
            app.draw()
            while app.parts.plan.worker.is_busy:
                await pilot.pause(0.02)
        grown = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    print(
        f"{key:30} {cells} cells {whole:5.2f} s   advice {advised:5.2f} s   longest stall"
        f" {stall * 1000:3.0f} ms   {OTHERS} other maps add {grown / 2**20:.1f} MiB"
    )
    return stall


async def _longest_gap() -> float:
    """The longest time in which nothing else had a turn, until it is cancelled."""
    longest, last = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    except asyncio.CancelledError:
        return longest


if __name__ == "__main__":
    raise SystemExit(main())
