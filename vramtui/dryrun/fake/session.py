"""One trace: modes, patches, hooks and memory put together."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
import torch._dynamo  # before functions of torch are replaced: it tells them apart by their identity
from typing_extensions import Self

from vramtui.core.estimate.devices import Device
from vramtui.dryrun.fake import distributed, loading
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory, Workspaces
from vramtui.dryrun.fake.accounting.phases import Whereabouts
from vramtui.dryrun.fake.accounting.recorder import TraceRecorder
from vramtui.dryrun.fake.device import cuda_api, device, names, unfollowed
from vramtui.dryrun.fake.device.cuda_api import simulated_card
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.dispatch import autocast, composites, values
from vramtui.dryrun.fake.dispatch.autograd import Accumulation, measure_sole_owner
from vramtui.dryrun.fake.dispatch.memory_mode import MemoryMode
from vramtui.dryrun.fake.failures import Escape
from vramtui.dryrun.fake.kernels import layers, load_all, matmul, recurrent
from vramtui.dryrun.result import Progress
from vramtui.estimators.torch_facts.releases import release_of


class TraceSession:
    def __init__(
        self,
        allocator: Any,
        card: Device,
        *,
        steps: int = 3,
        progress: Callable[[Progress], None] = lambda _progress: None,
        ranks: int = 0,
    ) -> None:
        self._ranks = ranks
        self.shielded = False  # whether what the code writes is thrown away
        self.torch_version = str(torch.__version__)
        facts = simulated_card(card)
        self.where = Whereabouts()
        self.memory = SimulatedMemory(allocator, facts, self.where)
        self.memory.values = values.FakeValues(self.memory)
        facts.workspaces = Workspaces(self.memory, facts.capability, release_of(self.torch_version))
        self.recorder = TraceRecorder(self.memory, self.where, steps, progress)
        self.phases = self.recorder.phases
        self._patches = Patches()
        self.escape = Escape()
        self._fake: Any = device.SimFakeMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self._mode: Any = None
        self._libraries: list[Any] = []
        self._thread = threading.get_ident()

    def __enter__(self) -> Self:
        device.register()
        load_all()
        names.install(self._patches)
        cuda_api.install(self._patches, self.memory, distributed.cards_of_host(self._ranks))
        unfollowed.install(self._patches, self.memory)
        matmul.steer(self._patches)
        recurrent.steer(self._patches, self.memory)
        layers.steer_batch_norm(self._patches)
        values.install(self._patches, self.memory)
        layers.steer_ctc_loss(self._patches, self.memory)
        card = self.memory.device
        self._libraries = [autocast.install(self._patches), composites.install(card.capability)]
        accumulation = Accumulation(measure_sole_owner(self._fake))
        self._fake.__enter__()
        self.escape.install(self._patches)
        self._mode = MemoryMode(self.memory, self.where, accumulation, self.escape)
        distributed.install(self._patches, self.memory, self._ranks, self._mode.shapes_only)
        self.recorder.install(self._patches)
        self._mode.__enter__()
        loading.install(self._patches, self.memory, (self._fake, self._mode), shielded=self.shielded)
        return self

    def tell_place(self) -> None:
        """Say where the code is; from any thread."""
        self.recorder.goes_on(self.where.user_line(self._thread))

    def begin_again(self) -> None:
        """Take nothing that has run so far for a part of the job."""
        self.recorder.rows.clear()
        self.phases.begin_again()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mode is not None:
            self._mode.__exit__(kind, error, trace)
        self._fake.__exit__(kind, error, trace)
        self.recorder.remove()
        self._patches.undo()
        torch._C._set_grad_enabled(True)
