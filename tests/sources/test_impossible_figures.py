"""No figure that the driver gives, however impossible, ends a client or hides what is in order beside it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.sources.conftest import Stage
from tests.stub.world import MIB, StubGpu, StubProcess
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation.bounded_samples import is_possible
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import METRICS, Absence, decode_sample, encode_sample
from vramtui.sources.nvidia_smi import parse_value

HUGE = (1 << 63, (1 << 64) - 2, 1 << 60, (1 << 62) + 1)


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("total", [0, 80 << 30])
def test_a_process_of_a_size_that_nothing_has(stage: Stage, size: int, total: int) -> None:
    """On a card without a total there is nothing else to hold it to."""
    gpu = StubGpu(total=total, used=0, reserved=0)
    gpu.processes = [StubProcess(1000 + number, 500 * MIB) for number in range(4)] + [StubProcess(2000, size)]
    stage.world.gpus = [gpu, StubGpu()]
    sample = stage.tick()
    assert decode_sample(encode_sample(sample)) == sample
    held = {row.pid: row.used_memory for row in sample.gpus[0].processes}
    assert held == {1000: 500 * MIB, 1001: 500 * MIB, 1002: 500 * MIB, 1003: 500 * MIB, 2000: None}
    assert any("1 record of nvmlDeviceGetComputeRunningProcesses" in problem.message for problem in sample.problems)
    history = History()
    history.add(sample)
    assert len(history.tracks) == 5


@pytest.mark.parametrize(("pid", "said"), [(1 << 30, "1 record"), (0, "impossible pid")])
def test_one_of_two_with_a_pid_that_nothing_has_hides_itself_alone(stage: Stage, pid: int, said: str) -> None:
    stage.world.gpus = [StubGpu(processes=[StubProcess(pid, 100 * MIB), StubProcess(1000, 500 * MIB)])]
    sample = stage.tick()
    assert {row.pid: row.used_memory for row in sample.gpus[0].processes} == {1000: 500 * MIB}
    assert sample.gpus[0].processes_trusted
    assert [problem.message for problem in sample.problems if said in problem.message]


@pytest.mark.parametrize("size", HUGE)
def test_memory_of_a_size_that_nothing_has(stage: Stage, size: int) -> None:
    stage.world.gpus = [StubGpu(total=size, used=size, reserved=1)]
    sample = stage.tick()
    memory = sample.gpus[0].memory
    assert (memory.total, memory.used) == (None, None)
    assert decode_sample(encode_sample(sample)) == sample


@pytest.mark.parametrize(
    "metric",
    ["power", "power_limit", "temperature", "sm_clock", "fan", "pcie_generation", "pcie_width", "utilization"],
)
def test_a_metric_beyond_its_limit_is_a_failed_answer(stage: Stage, metric: str) -> None:
    changed: dict[str, Any] = {metric: 1 << 31}
    stage.world.gpus = [replace(StubGpu(), **changed)]
    gpu = stage.tick().gpus[0]
    assert Absence.FAILED in gpu.absent.values()
    assert all(is_possible(name, getattr(gpu, name)) for name in METRICS if getattr(gpu, name) is not None)


@pytest.mark.parametrize("text", [f"{1 << 44} MiB", "-5 MiB", str(1 << 70)])
def test_what_nvidia_smi_prints_is_bounded_too(text: str) -> None:
    assert LARGEST_SIZE == (1 << 60) - 1  # what a recording can hold
    assert parse_value(text, "mib") == (None, Absence.FAILED)
