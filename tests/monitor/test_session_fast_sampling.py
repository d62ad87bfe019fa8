import threading
import time
from collections.abc import Mapping

import msgspec
import pytest

from tests.examples import Never
from vramtui.cli.record import fast_targets
from vramtui.cli.run.results import GpuWatch
from vramtui.core.base.errors import UserError
from vramtui.core.observation.matcher import Matcher
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Gpu, Host, Process, ProcessKey, Sample
from vramtui.core.schema.preset import Match, PresetFile
from vramtui.monitor.poller import FastTargets, fast_sampler_for
from vramtui.monitor.session import MonitorSession
from vramtui.presets import PresetLibrary
from vramtui.sources.feed import ReplaySource

PIDS = (7, 8, 9)


def sample(at: float) -> Sample:
    rows = tuple(
        Process(pid=pid, type="C", used_memory=100 * pid, started_at=0.0, command=f"job {pid}") for pid in PIDS
    )
    gpu = Gpu(index=0, uuid="GPU-0", name="A", processes=rows)
    return Sample(taken_at=at, source="stub", host=Host(name="h"), gpus=(gpu,))


def key(pid: int) -> ProcessKey:
    return ProcessKey("h", "GPU-0", pid, 0.0)


def preset_of(command: str) -> PresetFile:
    preset = msgspec.structs.replace(PresetLibrary().get("gpt2-124m").preset, match=Match(all=((command,),)))
    return PresetFile(key="ours", path="", bundled=False, preset=preset)


class Spiking(Never):
    name = "stub"

    def __init__(self) -> None:
        self.looked_twice = threading.Event()
        self._looks = 0

    def read(self) -> Sample:
        return sample(time.time())

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        assert gpu_uuid == "GPU-0"
        self._looks += 1
        if self._looks > 1:
            self.looked_twice.set()  # so the first one's answer has been kept
        return {pid: 100 * pid + 1000 for pid in PIDS}


@pytest.mark.parametrize(
    ("targets", "sampled"),
    [("auto", {7, 8}), ("matched", {8}), (frozenset({9}), {9}), (frozenset({1}), set()), ("none", set())],
)
def test_those_that_are_known_or_wanted_are_sampled_fast(targets: FastTargets, sampled: set[int]) -> None:
    source = Spiking()
    sampler = fast_sampler_for(source, targets)
    session = MonitorSession(jobs=lambda: (ObservedJob(pid=7),), sampler=sampler)
    session.match_by(Matcher([preset_of("job 8")]).match)
    session.ingest(sample(1.0))
    assert {each.pid: peak.bytes for each, peak in session.peaks().items()} == {7: 700, 8: 800, 9: 900}
    if sampled:
        assert source.looked_twice.wait(60)
    session.ingest(sample(9e9))
    session.close()
    after = session.peaks()
    assert {each.pid for each, peak in after.items() if peak.bytes > 100 * each.pid} == sampled
    assert all(after[key(pid)].interval == 0.1 and after[key(pid)].how == "sampled" for pid in sampled)


def test_what_is_selected_is_sampled_and_a_run_knows_the_peaks_between() -> None:
    source = Spiking()
    session = MonitorSession(sampler=fast_sampler_for(source, "matched"))
    session.ingest(sample(1.0))
    session.select(key(9))
    assert source.looked_twice.wait(60)
    session.ingest(sample(9e9))
    session.close()
    assert {each.pid: peak.bytes for each, peak in session.peaks().items()} == {7: 700, 8: 800, 9: 1900}
    source = Spiking()
    watch = GpuWatch(source, 3600.0, jobs=lambda: (ObservedJob(pid=7),))
    watch.start()
    assert source.looked_twice.wait(60)
    watch.close()
    assert watch.peak("GPU-0", 7) == 1700
    assert watch.peak("GPU-0", 8) == 800
    assert watch.peak("GPU-0", 1) is None


def test_a_source_without_fast_looks_has_no_sampler() -> None:
    assert fast_sampler_for(ReplaySource([sample(1.0)]), "auto") is None
    assert fast_sampler_for(Spiking(), "none") is None


def test_what_else_is_said_gets_a_sentence() -> None:
    assert fast_targets("12, 7") == frozenset({12, 7})
    assert (fast_targets("auto"), fast_targets("none")) == ("auto", "none")
    for wrong in ("", "all", "7;8", "-3", "99999999999"):
        with pytest.raises(UserError, match=r"--close takes auto, none, or pids"):
            fast_targets(wrong)
