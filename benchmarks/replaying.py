"""What playing a crowded host's hour costs: CPU at 60x without a terminal, and how long a seek takes and freezes."""

import argparse
import asyncio
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.recording import a_second_later, host, jobs_of, predictions_of, tell
from vramtui.app.app import Dashboard
from vramtui.app.playback import Playback
from vramtui.presets import PresetLibrary
from vramtui.records.recording import Header, Recording, RecordingWriter, read_recording
from vramtui.sources.replay import ReplaySource

SIZE = (200, 50)
LOOK = 0.005


def record(path: Path, gpus: int, processes: int, seconds: int) -> None:
    """A recording of that long, in which every process has a probe and a prediction."""
    chance = random.Random(1)
    sample = host(gpus, processes)
    jobs = jobs_of(sample)
    predictions = predictions_of(sample)
    writer = RecordingWriter(path, Header(interval=1.0))
    for _ in range(seconds):
        sample = a_second_later(sample, chance)
        jobs = {pid: tell(job, sample.taken_at, chance) for pid, job in jobs.items()}
        writer.write(sample, tuple(jobs.values()), predictions)
    writer.close()


class Freezes:
    """The longest that the dashboard did nothing else, in seconds, since the last `take`."""

    def __init__(self) -> None:
        self._longest = 0.0

    async def watch(self) -> None:
        """Look at the clock again and again."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(LOOK)
            self._longest = max(self._longest, time.perf_counter() - began - LOOK)

    def take(self) -> float:
        """The longest so far; begin again."""
        longest, self._longest = self._longest, 0.0
        return longest


@asynccontextmanager
async def playing(recording: Recording) -> AsyncIterator[tuple[Dashboard, Playback, Pilot[None]]]:
    """A dashboard without a terminal that plays `recording`, with its presets read."""
    app = Dashboard(ReplaySource(recording.samples), PresetLibrary())
    app.play(recording)
    async with app.run_test(size=SIZE) as pilot:
        while not app.desk.presets:
            await pilot.pause(0.05)
        assert app.playback is not None
        yield app, app.playback, pilot


async def seek(app: Dashboard, playback: Playback, where: str) -> float:
    """Seconds until the dashboard shows that place."""
    began = time.perf_counter()
    problem = app.seek(where)
    assert not problem, problem
    while app.desk.sample is not recorded_at(app, playback):  # noqa: ASYNC110 - the dashboard tells nobody
        await asyncio.sleep(0.001)
    return time.perf_counter() - began


def recorded_at(app: Dashboard, playback: Playback) -> object:
    """The sample to be shown where the playing is."""
    assert app._recorded is not None  # noqa: SLF001 - nobody else needs to know
    return app._recorded.samples[playback.count - 1]  # noqa: SLF001 - as above


async def measure(recording: Recording, seconds: float) -> None:
    """Play, seek, and say what both took."""
    freezes = Freezes()
    async with playing(recording) as (app, playback, pilot):
        watching = asyncio.create_task(freezes.watch())
        for _ in range(5):
            app.action_replay_speed(1)
        await pilot.pause(1)
        freezes.take()
        position, began, spent = playback.position, time.perf_counter(), time.process_time()
        while playback.playing and time.perf_counter() - began < seconds:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)
        passed, spent = time.perf_counter() - began, time.process_time() - spent
        print(f"played at 60x      {playback.position - position:8.0f} s    in {passed:.0f} s", end="")
        print(f", {100 * spent / passed:.0f} % of a core, frozen for {freezes.take() * 1e3:.0f} ms at most")
        if playback.playing:
            playback.toggle()
        for where in ("0%", "100%", "50%", "99%", "-1m", "+1m"):
            await pilot.pause(0.2)
            freezes.take()
            took = await seek(app, playback, where)
            print(f"seek to {where:10} {took:8.2f} s    frozen for {freezes.take() * 1e3:.0f} ms at most")
        watching.cancel()


def main() -> None:
    """Record, read and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=3600, help="how long the recording is")
    parser.add_argument("--play", type=float, default=60.0, help="how many seconds it is played at 60x")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host.jsonl.gz"
        record(path, options.gpus, options.processes, options.seconds)
        print(f"{options.gpus} GPUs x {options.processes} processes, {options.seconds} samples, all with probes")
        print(f"file               {path.stat().st_size / 1e6:8.1f} MB")
        began = time.perf_counter()
        recording = read_recording(path)
        print(f"read               {time.perf_counter() - began:8.2f} s")
    asyncio.run(measure(recording, options.play))
    print(f"RSS                {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:8.0f} MB at most")


if __name__ == "__main__":
    main()
