"""A headless recording knows what happened between its samples."""

import threading
import time
from collections.abc import Mapping

import pytest

from vramtui.cli.record.fast_sampler import FastTargets, Wanted, wanted
from vramtui.cli.run.monitor import GpuWatch
from vramtui.cli.run.recorded_predictions import RunRecorded
from vramtui.core.base.errors import UserError
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Gpu, Host, Process, ProcessKey, Sample

PIDS = (7, 8, 9)


def sample(at: float) -> Sample:
    rows = tuple(Process(pid=pid, type="C", used_memory=100 * pid, started_at=0.0) for pid in PIDS)
    gpu = Gpu(index=0, uuid="GPU-0", name="A", processes=rows)
    return Sample(taken_at=at, source="stub", host=Host(name="h"), gpus=(gpu,))


def key(pid: int) -> ProcessKey:
    return ProcessKey("h", "GPU-0", pid, 0.0)


class Spiking:
    """At every close look each process holds a thousand bytes more than any sample shows."""

    name = "stub"

    def __init__(self) -> None:
        self.looked_twice = threading.Event()
        self._looks = 0

    def read(self) -> Sample:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        assert gpu_uuid == "GPU-0"
        self._looks += 1
        if self._looks > 1:
            self.looked_twice.set()  # so the first one's answer has been kept
        return {pid: 100 * pid + 1000 for pid in PIDS}


@pytest.mark.parametrize(
    ("aim", "closely"), [("auto", {7, 8}), (frozenset({9}), {9}), (frozenset({1}), set()), ("none", set())]
)
def test_those_that_are_known_or_wanted_are_looked_at_closely(aim: Wanted, closely: set[int]) -> None:
    source = Spiking()
    taking = FastTargets(source, aim)
    before = taking.take(sample(1.0), (ObservedJob(pid=7),), {key(8)})
    assert {each.pid: peak.bytes for each, peak in before.items()} == {7: 700, 8: 800, 9: 900}
    if closely:
        assert source.looked_twice.wait(60)
    after = taking.take(sample(9e9), (ObservedJob(pid=7),), {key(8)})
    taking.close()
    assert {each.pid for each, peak in after.items() if peak.bytes > 100 * each.pid} == closely
    assert all(after[key(pid)].interval == 0.1 and after[key(pid)].how == "sampled" for pid in closely)


def test_what_else_is_said_gets_a_sentence() -> None:
    assert wanted("12, 7") == frozenset({12, 7})
    assert (wanted("auto"), wanted("none")) == ("auto", "none")
    for wrong in ("", "all", "7;8", "-3", "99999999999"):
        with pytest.raises(UserError, match=r"--close takes auto, none, or pids"):
            wanted(wrong)


class Listing(Spiking):
    """Reads the same processes again and again."""

    def read(self) -> Sample:
        return sample(time.time())

    def close(self) -> None:
        """Nothing is held."""


def test_a_run_knows_the_peaks_between_its_samples() -> None:
    source = Listing()
    watch = GpuWatch(source, 3600.0)
    watch.beside = RunRecorded(lambda: (ObservedJob(pid=7),), None)
    watch.start()
    assert source.looked_twice.wait(60)
    watch._over.set()
    watch._thread.join()  # `close` waits for it as well, but not for ever
    watch.close()
    assert watch.peak("GPU-0", 7) == 1700
    assert watch.peak("GPU-0", 8) == 800
