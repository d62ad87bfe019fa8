"""What watching many hosts costs: processor, memory, and how long a key waits for the Fleet screen's rows.

The hosts are simulated: each sends whole samples as JSON lines through the reader that a connection has, without ssh.

    python benchmarks/fleet.py --hosts 256 --gpus 8 --processes 8 --interval 2 --seconds 20
"""

import argparse
import random
import resource
import threading
import time

import msgspec

from vramtui.app.fleet.screen import FleetModel
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample, encode_sample
from vramtui.monitor.fleet import Fleet, RemoteHost
from vramtui.monitor.session import MonitorSession
from vramtui.records.recording.files import LiveRecording

GIB = 1 << 30


class SimulatedHost:
    """Makes its lines beforehand, so that only the reading is measured."""

    name = "simulated"

    def __init__(self, number: int, gpus: int, processes: int) -> None:
        chance = random.Random(number)
        self._live = LiveRecording()
        self._live.take(b'{"vramtui_recording":1}')
        self._lines = [self._line(number, gpus, processes, chance) for _ in range(4)]
        self._at = 0

    def read(self) -> Sample:
        """The next sample, decoded."""
        self._at += 1
        sample = self._live.take(self._lines[self._at % len(self._lines)])
        assert sample is not None
        return msgspec.structs.replace(sample, taken_at=time.time())

    def close(self) -> None:
        """Nothing is held."""

    @staticmethod
    def _line(number: int, gpus: int, processes: int, chance: random.Random) -> bytes:
        cards = []
        for index in range(gpus):
            rows = tuple(
                Process(
                    pid=1000 * index + at + 1,
                    type="C",
                    used_memory=chance.randrange(GIB, 8 * GIB),
                    user=f"user{at}",
                    command=f"python train.py --rank {at} --config run{number}.yaml",
                    started_at=1.0,
                    state="running",
                )
                for at in range(processes)
            )
            used = sum(row.used_memory or 0 for row in rows)
            memory = Memory(total=80 * GIB, used=used, free=80 * GIB - used)
            uuid = f"GPU-{number:04}-{index}"
            cards.append(Gpu(index=index, uuid=uuid, name="NVIDIA H100", memory=memory, processes=rows, utilization=90))
        return encode_sample(Sample(taken_at=1.0, source="x", host=Host(name=f"gpu{number:03}"), gpus=tuple(cards)))


def main() -> None:
    """Watch for a while, and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("hosts", 256), ("gpus", 8), ("processes", 8), ("interval", 2), ("seconds", 20)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    hosts = [SimulatedHost(at, asked.gpus, asked.processes) for at in range(asked.hosts)]
    fleet = Fleet([RemoteHost(f"gpu{at:03}", host) for at, host in enumerate(hosts)], asked.interval)
    fleet.begin(lambda _: MonitorSession())
    threading.Thread(target=_read_current, args=(fleet,), daemon=True).start()
    time.sleep(6 * asked.interval)  # until every session is there
    begun, spent = time.monotonic(), time.process_time()
    model, waits, works = FleetModel(), [], []
    model.sort_by("used")
    while time.monotonic() - begun < asked.seconds:
        key, own = time.perf_counter(), time.thread_time()
        shown = model.view(fleet.summaries(), fleet.current)
        waits.append(time.perf_counter() - key)
        works.append(time.thread_time() - own)
        time.sleep(0.5)
    passed = time.monotonic() - begun
    share = (time.process_time() - spent) / passed
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{shown.up} of {shown.hosts} hosts up, {shown.total} GPUs, {asked.processes} processes each")
    print(f"processor: {share:.1%} of a core; resident: {size:.0f} MiB")
    print(f"rows of the Fleet screen: {sorted(waits)[len(waits) // 2] * 1e3:.0f} ms, {max(waits) * 1e3:.0f} ms at most")
    print(f"of that its own work: {sorted(works)[len(works) // 2] * 1e3:.0f} ms, {max(works) * 1e3:.0f} ms at most")


def _read_current(fleet: Fleet) -> None:
    while True:
        fleet.read()


if __name__ == "__main__":
    main()
