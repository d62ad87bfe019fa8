import os
import random
from collections.abc import Callable

import msgspec
import pytest

from tests.examples import Clock
from tests.sources.conftest import OTHER, Stage
from tests.stub import world
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import FastSource, process_key
from vramtui.monitor.poller import FastSampler
from vramtui.sources.demo import DemoSource
from vramtui.sources.nvidia_smi import NvidiaSmiSource

ME = os.getpid()


@pytest.fixture
def busy(stage: Stage) -> Stage:
    stage.hold(1, world.StubProcess(ME, 500 * world.MIB), world.StubProcess(OTHER, world.NOT_AVAILABLE))
    return stage


def uuid_of(stage: Stage, index: int = 1) -> str:
    return stage.tick().gpus[index].uuid


def test_one_device_is_asked_for_its_processes_and_for_nothing_else(busy: Stage) -> None:
    uuid = uuid_of(busy)
    calls = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetHandleByIndex_v2")
    before = [busy.calls(call) for call in calls]
    lists = busy.calls("nvmlDeviceGetComputeRunningProcesses_v3")
    handles = busy.calls("nvmlDeviceGetHandleByUUID")  # of all tests in this process
    assert [busy.source.look(uuid) for _ in range(3)] == [{ME: 500 * world.MIB}] * 3  # what is not told is not 0
    assert [busy.calls(call) for call in calls] == before
    assert busy.calls("nvmlDeviceGetComputeRunningProcesses_v3") - lists <= 4
    assert (busy.calls("nvmlDeviceGetHandleByUUID") - handles, busy.source.look("GPU-no-such")) == (1, {})
    assert isinstance(busy.source, FastSource)
    assert not isinstance(DemoSource(), FastSource)
    assert not isinstance(NvidiaSmiSource(), FastSource)


def test_the_larger_of_both_lists(busy: Stage) -> None:
    busy.hold(1, world.StubProcess(ME, 500 * world.MIB, "C"), world.StubProcess(ME, 700 * world.MIB, "G"))
    assert busy.source.look(uuid_of(busy)) == {ME: 700 * world.MIB}


def test_an_instance_has_its_own(stage: Stage) -> None:
    card = stage.world.gpus[1]
    card.mig_mode, card.migs = (
        1,
        [world.StubMig("1g.18gb", "MIG-a", 1, 0, total=18000 * world.MIB, used=400 * world.MIB)],
    )
    card.processes = [world.StubProcess(ME, 300 * world.MIB, "C", 1, 0)]
    stage.tick()
    assert stage.source.look("MIG-a") == {ME: 300 * world.MIB}


@pytest.mark.parametrize("fault", [
    lambda gpu: gpu.lose(),
    lambda gpu: gpu.fail(world.UNINITIALIZED, world.EVERY_CALL),
    lambda gpu: gpu.fail(world.NO_PERMISSION, *world.PROCESS_CALLS),
    lambda gpu: setattr(gpu, "records", 0),
    lambda gpu: setattr(gpu.processes[0], "used", gpu.total + world.MIB),
], ids=["lost", "driver reloaded", "denied", "scrambled", "a size beyond the card's"])  # fmt: skip
def test_a_fault_says_nothing_until_it_is_over(busy: Stage, fault: Callable[[object], None]) -> None:
    uuid = uuid_of(busy)
    assert busy.source.look(uuid)
    fault(busy.world.gpus[1])
    busy.world.write(busy.path)
    assert busy.source.look(uuid) == {}
    busy.world.gpus[1].faults.clear()
    busy.world.gpus[1].records = 24
    busy.world.gpus[1].processes[0].used = 500 * world.MIB
    busy.world.write(busy.path)
    assert busy.source.look(uuid) == {ME: 500 * world.MIB}


def test_a_spike_of_a_quarter_of_a_second_is_never_missed(busy: Stage) -> None:
    """Fifty spikes at random moments, none of which a sample sees: each is in the peak of its process."""
    dice, found, clock = random.Random(4213), 0, Clock()
    row = busy.world.gpus[1].processes[0]
    for _ in range(50):
        row.used = 500 * world.MIB
        seen, begin = History(), busy.tick()
        seen.add(begin)
        gpu = begin.gpus[1]
        process = gpu.processes[0]
        key = process_key(begin.host.name, gpu, process)
        sampler = FastSampler(busy.source, clock=clock)
        sampler.aim([key])
        start = dice.uniform(0.05, 0.7)
        clock.now = begin.taken_at + dice.uniform(0.0, 0.1)
        while clock.now < begin.taken_at + 1.0:
            high = start <= clock.now - begin.taken_at < start + 0.25
            row.used = (900 if high else 500) * world.MIB
            busy.world.write(busy.path)
            sampler.step()
            clock.now += 0.1
        row.used = 500 * world.MIB
        end = msgspec.structs.replace(busy.tick(), taken_at=begin.taken_at + 1.0)
        seen.add_looks(sampler.pop_until(end.taken_at), end)
        seen.add(end)
        peak = seen.tracks[key].peak
        found += peak.bytes == 900 * world.MIB and (peak.how, peak.interval) == ("sampled", 0.1)
        assert 900 * world.MIB in seen.tracks[key].values
    assert found == 50


def test_a_look_that_hangs_holds_up_no_sample(busy: Stage) -> None:
    busy.impatient()
    sample = busy.tick()
    gpu = sample.gpus[1]
    sampler = FastSampler(busy.source)
    sampler.aim([process_key(sample.host.name, gpu, gpu.processes[0])])
    busy.world.gpus[1].hangs["nvmlDeviceGetComputeRunningProcesses_v3"] = world.FOR_EVER
    busy.world.write(busy.path)
    sampler.start()
    after = busy.tick()
    assert [card.state for card in after.gpus] == ["ok", "failed", "ok"]
    sampler.stop()
    assert sampler.is_alive()  # in the driver, and nobody waits for it
    busy.world.gpus[1].hangs.clear()
    busy.world.write(busy.path)
    sampler.join(60)
    assert not sampler.is_alive()
