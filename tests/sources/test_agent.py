import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

import msgspec
import pynvml
import pytest

from tests.sources.conftest import OTHER, Stage
from tests.stub.build import build
from tests.stub.world import GPU_IS_LOST, MIB, NOT_AVAILABLE, NOT_SUPPORTED, StubMig, StubProcess
from vramtui.agent.nvml import ABSENCES, HOST_TOTAL, LOST
from vramtui.agent.stream import BROKEN, CLOCK_MEM, CLOCK_SM
from vramtui.core.observation.readings import Gpu, Memory, Process, Sample, decode_sample
from vramtui.sources.ssh import MODULES, agent_program

INTERVAL = 0.05
OLD = tuple(f"python3.{minor}" for minor in range(6, 10))


def test_codes_are_those_of_nvml() -> None:
    names = {
        "not_supported": ("NOT_SUPPORTED",),
        "no_permission": ("NO_PERMISSION",),
        "driver_too_old": ("FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"),
        "lost": ("GPU_IS_LOST",),
        "no_answer": ("NOT_FOUND", "TIMEOUT", "NO_DATA", "NOT_READY"),
    }
    codes = {getattr(pynvml, f"NVML_ERROR_{name}"): why for why, each in names.items() for name in each}
    assert (codes, list(LOST)) == (ABSENCES, [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
    assert (CLOCK_SM, CLOCK_MEM) == (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)


@cache
def oldest_python() -> str | None:
    folders = sorted((Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions").glob("3.[6-9].*/bin"))
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    for name in OLD:
        for folder in path.split(os.pathsep):
            found = shutil.which(name, path=folder)
            if (
                found
                and not subprocess.run([found, "-c", "import ctypes"], capture_output=True, check=False).returncode
            ):
                return found
    return None


def started(program: bytes, python: str = sys.executable, **env: str) -> "subprocess.Popen[bytes]":
    command = [python, "-I", "-S", "-c", f"import sys;exec(sys.stdin.buffer.read({len(program)}))"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env={"PATH": "", **env})
    process.stdin.write(program)
    process.stdin.flush()
    return process


@contextmanager
def agent(stage: Stage, variant: str = "current", python: str = sys.executable) -> Iterator[IO[bytes]]:
    env = {"LD_LIBRARY_PATH": str(build(variant)), "VRAMTUI_STUB_STATE": str(stage.path)}
    with started(agent_program(INTERVAL), python, **env) as process:
        assert process.stdout is not None
        yield process.stdout
        process.stdin.close()
        assert process.wait(10) == 0


def seen_by_agent(stage: Stage, variant: str = "current", python: str = sys.executable) -> Sample:
    stage.world.write(stage.path)
    with agent(stage, variant, python) as lines:
        assert lines.readline().startswith(b'{"vramtui_recording":1,')
        return decode_sample(lines.readline())


@pytest.fixture
def ranked() -> Iterator[int]:
    env = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.5", "MASTER_PORT": "29500"}
    with subprocess.Popen(["/bin/sleep", "600"], env=env) as process:
        yield process.pid
        process.kill()


def comparable(sample: Sample) -> tuple[Gpu, ...]:
    def still(process: Process) -> Process:
        return msgspec.structs.replace(process, cpu_percent=None, host_memory=None)

    def memory(gpu: Gpu) -> Memory:
        return msgspec.structs.replace(gpu.memory, free=None) if gpu.memory.unified else gpu.memory

    return tuple(
        msgspec.structs.replace(
            gpu, memory=memory(gpu), processes=tuple(sorted(map(still, gpu.processes), key=lambda row: row.pid))
        )
        for gpu in sample.gpus
    )


def _busy(stage: Stage) -> None:
    own = os.getpid()
    stage.hold(0, StubProcess(own, 300 * MIB), StubProcess(OTHER, 20 * MIB), StubProcess(own, 310 * MIB, "G"))
    stage.hold(2, StubProcess(own, 500 * MIB), StubProcess(own, 500 * MIB, "M+C"), StubProcess(OTHER, 7 * MIB, "M+C"))
    stage.hold(1, StubProcess(own, NOT_AVAILABLE))


def _mig(stage: Stage) -> None:
    card = stage.world.gpus[1]
    card.mig_mode, card.used = 1, 900 * MIB
    card.migs = [
        StubMig("1g.18gb", "MIG-a", 1, 0, total=18000 * MIB, used=600 * MIB),
        StubMig("2g.35gb", "MIG-b", 2, 0, total=35000 * MIB, used=100 * MIB),
    ]
    card.processes = [StubProcess(os.getpid(), 500 * MIB, gpu_instance=1, compute_instance=0)]


def _lost(stage: Stage) -> None:
    stage.world.gpus[2].lose()
    stage.world.gpus[1].fail(NOT_SUPPORTED, "nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates")


def _unified(stage: Stage) -> None:
    card = stage.world.gpus[0]
    card.total, card.reserved, card.used = HOST_TOTAL, 0, 9 * 1024 * MIB
    stage.hold(0, StubProcess(os.getpid(), 500 * MIB))


def _other_records(stage: Stage) -> None:
    _busy(stage)
    stage.world.gpus[0].records = 32
    stage.world.gpus[1].records = 16


@pytest.mark.parametrize("scene", [lambda _: None, _busy, _mig, _lost, _unified, _other_records])
def test_it_sees_what_the_source_sees(scene: Callable[[Stage], None], stage: Stage) -> None:
    scene(stage)
    expected = stage.tick()
    found = seen_by_agent(stage)
    assert comparable(found) == comparable(expected)
    for name in ("name", "driver_version", "cuda_version", "memory_total"):
        assert getattr(found.host, name) == getattr(expected.host, name)


@pytest.mark.parametrize("scene", [_busy, _mig, _lost])
def test_an_old_python_sees_the_same(scene: Callable[[Stage], None], stage: Stage, ranked: int) -> None:
    python = oldest_python()
    if python is None:
        pytest.skip("no Python 3.6 to 3.9 is here")
    scene(stage)
    stage.world.gpus[0].processes.append(StubProcess(ranked, 70 * MIB))
    expected = stage.tick()
    found = seen_by_agent(stage, python=python)
    assert comparable(found) == comparable(expected)
    rank = next(process.rank for process in found.gpus[0].processes if process.pid == ranked)
    assert (rank.rank, rank.size) == (1, 4)


def test_a_look_that_breaks_or_finds_no_driver_ends_it_before_a_line_is_written(stage: Stage) -> None:
    """The far end's shell then reads nvidia-smi instead, and says why."""
    stage.world.write(stage.path)
    broken = agent_program(INTERVAL).replace(b"self.wanted.acquire()", b"1 / 0", 1)
    env = {"LD_LIBRARY_PATH": str(build()), "VRAMTUI_STUB_STATE": str(stage.path)}
    with started(broken, **env) as process:
        process.wait(20)
        out, errors = process.communicate()
    assert (process.returncode, out) == (BROKEN, b"")
    assert b"ZeroDivisionError" in errors
    with started(agent_program(INTERVAL)) as process:
        process.wait(20)
        out, errors = process.communicate()
    assert (process.returncode, out, errors) == (3, b"", b"")


def test_a_driver_from_before_the_second_versions_of_calls(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage("old")
    _busy(stage)
    expected = stage.tick()
    assert comparable(seen_by_agent(stage, "old")) == comparable(expected)


def test_it_follows_the_host_and_ends_however_full_the_pipe_is(stage: Stage) -> None:
    with agent(stage):
        pass  # it sees that it has ended; nobody has read a line
    with agent(stage) as lines:
        lines.readline()
        stage.world.gpus[0].used = 777 * MIB
        stage.world.gpus[1].fail(GPU_IS_LOST, "nvmlDeviceGetMemoryInfo_v2")
        stage.world.write(stage.path)
        for _ in range(100):
            sample = decode_sample(lines.readline())
            if sample.gpus[0].memory.used == 777 * MIB:
                break
        assert (sample.gpus[0].memory.used, sample.gpus[1].state) == (777 * MIB, "lost")


# What came after 3.6, of what a program of this kind may reach for.
NEWER = {
    *("isascii", "removeprefix", "removesuffix", "time_ns", "monotonic_ns", "nullcontext", "capture_output"),
    *("prod", "isqrt", "fromisoformat", "pidfd_open", "memfd_create", "posix_spawn", "excepthook", "bit_count"),
}


def test_what_is_sent_has_nothing_that_python_3_6_cannot_read() -> None:
    """RHEL 8's own Python is 3.6: it knows neither `from __future__ import annotations` nor `dict[str, int]`."""
    program = agent_program(1.0).decode()
    assert len(program) < 1 << 16  # it never fills a pipe
    begins = program.index("vramtui_agent([") + len("vramtui_agent(")
    sources = ast.literal_eval(program[begins : program.rindex(", 1.0))")])
    assert [name for name, _ in sources] == list(MODULES)
    for name, source in sources:
        tree = ast.parse(source, feature_version=(3, 6))
        assert "__future__" not in source, name
        assert "typing" not in source, name
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.Attribute) and node.attr in NEWER), name
            assert not isinstance(node, ast.AnnAssign | ast.NamedExpr), name
            assert getattr(node, "annotation", None) is None, name
            assert getattr(node, "returns", None) is None, name
