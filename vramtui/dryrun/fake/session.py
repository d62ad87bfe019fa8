"""One trace: modes, patches, hooks and memory put together."""

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # before functions of torch are replaced: it tells them apart by their identity
from typing_extensions import Self

from vramtui.dryrun.fake import distributed, loading
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory, Workspaces
from vramtui.dryrun.fake.accounting.phases import Whereabouts
from vramtui.dryrun.fake.accounting.recorder import TraceRecorder
from vramtui.dryrun.fake.device import cuda_api, device, names, unfollowed
from vramtui.dryrun.fake.device.cuda_api import SimulatedCard
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.dispatch import composites, values
from vramtui.dryrun.fake.dispatch.autograd import Accumulation, measure_sole_owner
from vramtui.dryrun.fake.dispatch.memory_mode import MemoryMode
from vramtui.dryrun.fake.failures import Escape
from vramtui.dryrun.fake.kernels import convolution, layers, matmul, recurrent  # noqa: F401 - it registers operators
from vramtui.dryrun.result import Progress, TraceRequest
from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context_bytes
from vramtui.estimators.torch_facts.releases import note_on, release_of


class TraceSession:
    def __init__(self, request: TraceRequest, progress: Callable[[Progress], None]) -> None:
        card, release = request.device, release_of(torch.__version__)
        allocator = CachingAllocator(card.total_memory, AllocatorConfig.parse(request.alloc_conf), release)
        self.context = cuda_context_bytes(card.capability)
        allocator.hold_outside(self.context)
        facts = SimulatedCard(card.name, card.total_memory, card_limits(card))
        self.request = request
        self.shielded = bool(request.scratch)  # whether what the code writes is thrown away
        self.where = Whereabouts()
        self.memory = SimulatedMemory(allocator, facts, self.where)
        self.memory.values = values.FakeValues(self.memory)
        facts.workspaces = Workspaces(self.memory, facts.capability, release)
        self.recorder = TraceRecorder(self.memory, self.where, request.steps, progress)
        self.phases = self.recorder.phases
        if note := note_on(str(torch.__version__)):
            self.memory.warn(note)
        self._patches = Patches()
        self.escape = Escape()
        self._fake: Any = device.SimFakeMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self._mode: Any = None

    def __enter__(self) -> Self:
        device.register()
        names.install(self._patches)
        cuda_api.install(self._patches, self.memory, distributed.cards_of_host(self.request.ranks))
        unfollowed.install(self._patches, self.memory)
        matmul.steer(self._patches)
        recurrent.steer(self._patches, self.memory)
        layers.steer_batch_norm(self._patches)
        values.install(self._patches, self.memory)
        layers.steer_ctc_loss(self._patches, self.memory)
        self._libraries = composites.install(self._patches, self.memory.device.capability)
        accumulation = Accumulation(self.memory, measure_sole_owner(self._fake))
        self._fake.__enter__()
        self.escape.install(self._patches)
        self._mode = MemoryMode(self.memory, self.where, accumulation, self.escape)
        distributed.install(self._patches, self.memory, self.request.ranks, self._mode.shapes_only)
        self.recorder.install(self._patches)
        self._mode.__enter__()
        loading.install(self._patches, self.memory, (self._fake, self._mode), shielded=self.shielded)
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)
        self._fake.__exit__(*error)
        self.recorder.remove()
        self._patches.undo()
        torch._C._set_grad_enabled(True)
