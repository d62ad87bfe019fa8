"""One trace: modes, patches and memory put together."""

from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from typing_extensions import Self

from vramtui.estimators.traced import autocast, cuda_api, device, names, sdpa, steering
from vramtui.estimators.traced.accumulation import Accumulation, measure_sole_owner
from vramtui.estimators.traced.kernels import load_all
from vramtui.estimators.traced.memory import Memory
from vramtui.estimators.traced.memory_mode import MemoryMode
from vramtui.estimators.traced.patching import Patches
from vramtui.estimators.traced.workspaces import Workspaces


@dataclass
class Card:
    """What kernels ask of the card."""

    name: str
    capability: tuple[int, int]
    total_memory: int
    multiprocessors: int = 132
    threads_per_multiprocessor: int = 2048
    workspaces: Any = None


class Session:
    """Within it, "cuda" is the simulated card."""

    def __init__(self, allocator: Any, capability: tuple[int, int], name: str, total_memory: int) -> None:
        self.card = Card(name, capability, total_memory)
        self.memory = Memory(allocator, self.card)
        self.card.workspaces = Workspaces(self.memory, capability)
        self.patches = Patches()
        device.register()
        load_all()
        self._fake: Any = device.SimFakeMode(allow_non_fake_inputs=True)
        self._mode: Any = None
        self._libraries: list[Any] = []

    def __enter__(self) -> Self:
        names.install(self.patches)
        cuda_api.install(self.patches, self.memory)
        self._libraries = [autocast.install(self.patches), sdpa.install(self.card.capability), steering.install()]
        self._fake.__enter__()
        self._mode = MemoryMode(self.memory, Accumulation(measure_sole_owner()))
        self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mode is not None:
            self._mode.__exit__(kind, error, trace)
        self._fake.__exit__(kind, error, trace)
        self.patches.undo()
        torch._C._set_grad_enabled(True)
