"""One trace: modes, patches, hooks and memory put together."""

import os
import random
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # before functions of torch are replaced: it tells them apart by their identity
from typing_extensions import Self

from vramtui.dryrun.fake import distributed, failures, loading
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.accounting.phases import TraceRecorder, Whereabouts
from vramtui.dryrun.fake.device import cuda_api, device
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.dispatch import composites, values
from vramtui.dryrun.fake.dispatch.autograd import Accumulation, measure_sole_owner
from vramtui.dryrun.fake.dispatch.memory_mode import MemoryMode
from vramtui.dryrun.fake.kernels import convolution, layers, recurrent  # noqa: F401 - it registers operators
from vramtui.dryrun.result import Progress, TraceRequest
from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.cards import cuda_context_bytes
from vramtui.estimators.torch_facts.releases import release_of
from vramtui.probe.import_hook import when_imported


class TraceSession(Patches):
    def __init__(self, request: TraceRequest, progress: Callable[[Progress], None]) -> None:
        super().__init__()
        card, conf = request.device, AllocatorConfig.parse(request.alloc_conf)
        allocator = CachingAllocator(card.total_memory, conf, release_of(torch.__version__))
        self.context = cuda_context_bytes(card.capability)
        allocator.hold_outside(self.context)
        self.request, self.escape = request, failures.Escape()
        self.memory = SimulatedMemory(allocator, card, Whereabouts())
        self.memory.values = values.FakeValues(self.memory, request.other_numbers)
        self.phases = TraceRecorder(self.memory, request, progress)

    def __enter__(self) -> Self:
        memory, ranks = self.memory, self.request.ranks
        self.callback(torch._C._set_grad_enabled, True)
        random.seed(0)  # a job that sets no seed has the same batches with either engine
        torch.default_generator.manual_seed(0)
        when_imported("numpy.random", lambda numpy: numpy.seed(0))
        device.register()
        device.install(self)
        # A rank finds a card for each on its host, as torchrun says or `--ranks` does.
        cards = distributed.first_of(os.environ.get("LOCAL_WORLD_SIZE"), ranks, os.environ.get("WORLD_SIZE"))
        cuda_api.install(self, memory, cards)
        failures.install_refusals(self, memory)
        recurrent.steer(self, memory)
        layers.steer(self, memory)
        values.install(self, memory)
        composites.install(self, memory.device.capability)
        kind: Any = device.SimFakeMode
        fake = kind(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        accumulation = Accumulation(memory, measure_sole_owner(fake))
        self.enter_context(fake)
        self.escape.install(self)
        mode = MemoryMode(memory, accumulation, self.escape)
        distributed.install(self, memory, ranks, mode.shapes_only)
        self.phases.install(self)
        self.enter_context(mode)
        loading.install(self, memory, (fake, mode), shielded=bool(self.request.scratch))
        return self
