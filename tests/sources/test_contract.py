import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.sources.conftest import OTHER, Stage
from tests.sources.test_amdgpu import Machine, client
from tests.stub.nvidia_smi import card
from tests.stub.world import MIB, NOT_AVAILABLE, StubMig, StubProcess
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Gpu, Memory, Source, decode_sample, encode_sample
from vramtui.sources.demo import DemoSource
from vramtui.sources.feed import ReplaySource
from vramtui.sources.nvidia_smi import NvidiaSmiSource
from vramtui.sources.pick import MergedSource

# what need not be there, and needs no reason for it
OPTIONAL = {"peak_memory", "mig_parent", "mig_profile", "mig_used", "started_at", "cpu_percent", "host_memory", "rank"}
OPTIONAL |= {"sm_percent", "container", "ancestors", "module_loading", "torch", "alloc_conf"}
Make = Callable[[], Source]


def nvml(request: pytest.FixtureRequest) -> Make:
    stage: Stage = request.getfixturevalue("stage")
    stage.hold(0, StubProcess(os.getpid(), 500 * MIB), StubProcess(OTHER, NOT_AVAILABLE))
    stage.world.gpus[1].lose()
    stage.world.gpus[2].utilization = None
    stage.world.gpus[2].mig_mode = 1
    stage.world.gpus[2].migs = [StubMig("1g.18gb", "MIG-a", 1, 0, total=18000 * MIB)]
    stage.world.write(stage.path)
    return lambda: stage.source


def nvidia_smi(request: pytest.FixtureRequest) -> Make:
    say: Callable[[dict[str, Any]], None] = request.getfixturevalue("smi")
    apps = [f"{os.getpid()}, {card(0)['uuid']}, 900, python", f"{OTHER}, {card(0)['uuid']}, [N/A], init"]
    say({"gpus": [card(0), card(1, utilization__gpu="ERR!")], "apps": apps})
    return NvidiaSmiSource


def demo(_: pytest.FixtureRequest) -> Make:
    return DemoSource


def amdgpu(request: pytest.FixtureRequest) -> Make:
    machine = Machine(request.getfixturevalue("tmp_path"))
    machine.holds(machine.pid, 5, client(1, "1048576 KiB"))
    return machine.source


def both(request: pytest.FixtureRequest) -> Make:
    first, other = nvml(request)(), amdgpu(request)()
    return lambda: MergedSource(first, other)


def replay(_: pytest.FixtureRequest) -> Make:
    return lambda: ReplaySource([DemoSource(clock=lambda: 1000.0).read()])


@pytest.mark.parametrize("make", [nvml, nvidia_smi, amdgpu, both, demo, replay], ids=lambda make: make.__name__)
def test_every_source_is_checked(make: Callable[[pytest.FixtureRequest], Make], request: pytest.FixtureRequest) -> None:
    source = make(request)()
    first, second = source.read(), source.read()
    assert decode_sample(encode_sample(first)) == first
    assert second.taken_at >= first.taken_at > 0
    assert first.source in (source.name, "demo")  # a recording says where it was made
    assert first.host.name
    assert first.gpus
    assert len({gpu.uuid for gpu in first.gpus}) == len(first.gpus)
    texts = [first.host.name, first.source]
    for gpu in first.gpus:
        assert gpu.uuid
        assert gpu.name
        assert len({process.pid for process in gpu.processes}) == len(gpu.processes)
        check_reasons(gpu)
        if gpu.state == "ok":
            assert gpu.unattributed is not None
            told = gpu.attributed + gpu.unattributed + (gpu.memory.reserved or 0) + (gpu.memory.free or 0)
            assert told == gpu.memory.total
        texts += [gpu.name, gpu.uuid, gpu.reason]
        texts += [text for process in gpu.processes for text in (process.user, process.name, process.command) if text]
    texts += [text for problem in first.problems for text in (problem.where, problem.message, problem.hint)]
    assert all(printable(text) == text for text in texts)
    source.close()
    source.close()


def unknown(reading: msgspec.Struct) -> set[str]:
    return {field for field in reading.__struct_fields__ if getattr(reading, field) is None} - OPTIONAL


def check_reasons(gpu: Gpu) -> None:
    given = {name.partition(".")[0] for name in gpu.absent}
    assert unknown(gpu) - set(gpu.absent) <= ({"pci_bus_id", "compute_capability"} if gpu.state != "ok" else set())
    assert given - {"memory", "processes"} <= unknown(gpu)
    assert ("memory" in gpu.absent) == (gpu.memory == Memory())
    if gpu.state != "ok":
        assert gpu.reason
    for process in gpu.processes:
        told_by_state = set() if process.state in ("running", "zombie") else {"user", "name", "command"}
        assert unknown(process) - told_by_state <= set(process.absent)
        assert set(process.absent) <= unknown(process)
