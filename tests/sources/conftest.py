import ctypes
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.examples import Clock
from tests.stub.build import LIBRARY, build
from tests.stub.nvidia_smi import install
from tests.stub.world import MIB, StubGpu, StubProcess, World
from vramtui.agent.processes import HOST_NAMESPACE
from vramtui.core.observation.readings import Sample
from vramtui.sources.host import host
from vramtui.sources.nvml.source import NvmlSource

OTHER = (1 << 22) - 2  # a pid that nobody has


class Stage:
    """A host of three cards behind the stand-in library; `tick` writes the world and reads it through the source."""

    def __init__(self, path: Path, library: ctypes.CDLL) -> None:
        self.path = path
        self.library = library
        self.clock = Clock()
        self.world = World([StubGpu(used=(100 + index) * MIB, utilization=10 + index) for index in range(3)])
        self.world.write(path)
        self.source = NvmlSource(monotonic=self.clock, timeout=20.0)

    def impatient(self) -> None:
        """Use a source that gives up on a card within a second; others get a quarter of that beside it."""
        self.source = NvmlSource(monotonic=self.clock, timeout=1.0)

    def tick(self, seconds: float = 1.0) -> Sample:
        self.world.write(self.path)
        self.clock.now += seconds
        return self.source.read()

    def hold(self, gpu: int, *processes: StubProcess) -> None:
        self.world.gpus[gpu].processes = list(processes)
        self.world.gpus[gpu].used = sum(max(0, process.used) for process in processes) + 4 * MIB

    def calls(self, function: str) -> int:
        return int(self.library.stub_calls(function.encode()))


@pytest.fixture(autouse=True)
def _on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the tests run, pids mean what they mean on a host; tests of containers say so themselves."""
    monkeypatch.setattr(host, "own_namespace", lambda: HOST_NAMESPACE)


@pytest.fixture
def make_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stage]]:
    stages: list[Stage] = []

    def make(variant: str = "current") -> Stage:
        path = tmp_path / "world"
        monkeypatch.setenv("VRAMTUI_STUB_STATE", str(path))
        library = ctypes.CDLL(str(build(variant) / LIBRARY))
        monkeypatch.setattr(pynvml, "nvmlLib", library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        stages.append(Stage(path, library))
        return stages[-1]

    yield make
    for stage in stages:
        for gpu in stage.world.gpus:
            gpu.hangs.clear()  # what still hangs in the library comes back, and its thread ends
        stage.world.hangs.clear()
        stage.world.write(stage.path)
        stage.source.close()


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    return make_stage()


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    folder = tmp_path / "bin"
    folder.mkdir()
    install(folder)
    state = tmp_path / "smi.json"
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("VRAMTUI_STUB_SMI", str(state))

    def say(answers: dict[str, Any]) -> None:
        state.write_text(json.dumps(answers))

    return say
