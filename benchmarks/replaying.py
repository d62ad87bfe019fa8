"""What playing a crowded host's hour costs: CPU at 60x without a terminal, and how long a seek takes and freezes.

With `--hours` the recording is so long: ten minutes that were recorded, over and over, each time later. Such a long one
is shown while it is read, as the dashboard does: printed is when the first picture is there, and how the reading goes.
"""

import argparse
import asyncio
import gzip
import random
import re
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
from vramtui.app.replay import ReplayController
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.presets import PresetLibrary
from vramtui.records.recording.growing_recording import GrowingRecording, open_recording
from vramtui.records.recording.writer import Recording, RecordingHeader, RecordingWriter
from vramtui.sources.replay import ReplaySource

SIZE = (200, 50)
LOOK = 0.005
TEN_MINUTES = 600


def record(path: Path, gpus: int, processes: int, seconds: int) -> None:
    """A recording of that long, in which every process has a probe and a prediction."""
    chance = random.Random(1)
    sample = host(gpus, processes)
    jobs = jobs_of(sample)
    predictions = predictions_of(sample)
    writer = RecordingWriter(path, RecordingHeader(interval=1.0))
    for _ in range(seconds):
        sample = a_second_later(sample, chance)
        jobs = {pid: tell(job, sample.taken_at, chance) for pid, job in jobs.items()}
        writer.write(RecordedTick(sample, tuple(jobs.values()), predictions))
    writer.close()


def repeat(source: Path, target: Path, times: int) -> None:
    """The ten minutes of `source` so many times, one after the other."""
    with gzip.open(source) as file:
        header, *lines = file.read().splitlines(keepends=True)
    later = [line for line in lines if not line.startswith(b'{"prediction":')]
    with gzip.open(target, "wb", compresslevel=1) as file:
        file.write(header)
        for round_ in range(times):
            moved = _moved(b"".join(later if round_ else lines), float(round_ * TEN_MINUTES))
            file.write(moved)


def _moved(text: bytes, seconds: float) -> bytes:
    def add(found: re.Match[bytes]) -> bytes:
        return found[1] + repr(float(found[2]) + seconds).encode()

    return re.sub(rb'("(?:taken_at|at)":)([0-9.eE+]+)', add, text)


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
async def playing(
    recording: Recording | GrowingRecording,
) -> AsyncIterator[tuple[Dashboard, ReplayController, Pilot[None]]]:
    """A dashboard without a terminal that plays `recording`, with its presets read."""
    began = time.perf_counter()
    app = Dashboard(ReplaySource(recording.samples, times=recording.times), PresetLibrary())
    app.play(recording)
    async with app.run_test(size=SIZE) as pilot:
        print(f"first picture      {time.perf_counter() - began:8.2f} s    later")
        while not app.state.presets:
            await pilot.pause(0.05)
        assert app.parts.replay is not None
        yield app, app.parts.replay, pilot


async def seek(replay: ReplayController, where: str) -> float:
    """Seconds until the dashboard shows that place."""
    began = time.perf_counter()
    problem = replay.seek(where)
    assert not problem, problem
    while not replay.feed.is_there:  # noqa: ASYNC110 - the dashboard tells nobody
        await asyncio.sleep(0.001)
    return time.perf_counter() - began


async def read_on(recording: Recording | GrowingRecording, freezes: Freezes) -> None:
    """Wait until all is read."""
    began, spent = time.perf_counter(), time.process_time()
    freezes.take()
    while recording.reading is not None:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.1)
    took, spent = time.perf_counter() - began, time.process_time() - spent
    print(f"reading the rest   {took:8.1f} s    {spent:.1f} s of CPU with the dashboard's own", end="")
    print(f", frozen for {freezes.take() * 1e3:.0f} ms at most, {_resident():.0f} MB resident")


def _resident() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1e3


async def measure(recording: Recording | GrowingRecording, seconds: float) -> None:
    """Play, seek, and say what both took."""
    freezes = Freezes()
    async with playing(recording) as (_, replay, pilot):
        watching = asyncio.create_task(freezes.watch())
        await read_on(recording, freezes)
        for _ in range(5):
            replay.faster(1)
        await pilot.pause(1)
        freezes.take()
        start, began, spent = replay.feed.playback.position, time.perf_counter(), time.process_time()
        while replay.feed.playback.playing and time.perf_counter() - began < seconds:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)
        passed, spent = time.perf_counter() - began, time.process_time() - spent
        print(f"played at 60x      {replay.feed.playback.position - start:8.0f} s    in {passed:.0f} s", end="")
        print(f", {100 * spent / passed:.0f} % of a core, frozen for {freezes.take() * 1e3:.0f} ms at most")
        if replay.feed.playback.playing:
            replay.toggle()
        for where in ("0%", "100%", "50%", "99%", "-1m", "+1m"):
            await pilot.pause(0.2)
            freezes.take()
            took = await seek(replay, where)
            print(f"seek to {where:10} {took:8.2f} s    frozen for {freezes.take() * 1e3:.0f} ms at most")
        watching.cancel()


def main() -> None:
    """Record, read and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=3600, help="how long the recording is")
    parser.add_argument("--play", type=float, default=60.0, help="how many seconds it is played at 60x")
    parser.add_argument("--hours", type=int, help="how long it is, made of ten minutes over and over")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host.jsonl.gz"
        seconds = TEN_MINUTES if options.hours else options.seconds
        record(path, options.gpus, options.processes, seconds)
        if options.hours:
            path, part = Path(folder) / "hours.jsonl.gz", path
            repeat(part, path, options.hours * 3600 // TEN_MINUTES)
            seconds = options.hours * 3600
        print(f"{options.gpus} GPUs x {options.processes} processes, {seconds} samples, all with probes")
        print(f"file               {path.stat().st_size / 1e6:8.1f} MB")
        began = time.perf_counter()
        recording = open_recording(path)
        print(f"opened             {time.perf_counter() - began:8.2f} s    {len(recording.times)} samples read")
        asyncio.run(measure(recording, options.play))
    print(f"RSS                {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:8.0f} MB at most")


if __name__ == "__main__":
    main()
