"""What bytes are: weights, gradients, optimizer state, activations, inputs, workspaces, temporaries, kv cache."""

import gc
import re
import sys
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory, StorageEntry
from vramtui.dryrun.fake.accounting.phases import PhaseTracker
from vramtui.dryrun.result import CATEGORIES

_BY_BIRTH = {
    "model": "weights",
    "optimizer": "optimizer",
    "input": "inputs",
    "forward": "activations",
    "backward": "temporaries",
    "step": "temporaries",
    "zero_grad": "inputs",
}
_CACHE_NAME = re.compile(r"(^|[._])(k|v|kv|key|value|key_value)s?_?cache", re.IGNORECASE)


class Categories:
    """Marks entries by what holds them; where nothing does, the phase of birth decides."""

    def __init__(self, memory: SimulatedMemory, phases: PhaseTracker) -> None:
        self._memory = memory
        self._phases = phases
        self._caches: weakref.WeakSet[Any] = weakref.WeakSet()
        self._watching = False

    def mark(self) -> None:
        """Look at models, optimizers and caches, and mark what they hold."""
        for model in self._phases.models:
            self._mark_model(model)
        for optimizer in self._phases.optimizers:
            self._mark_optimizer(optimizer)
        self._watch_caches()
        for cache in list(self._caches):
            for layer in getattr(cache, "layers", ()):
                self._mark((getattr(layer, "keys", None), getattr(layer, "values", None)), "kv_cache")

    def sums(self, entries: Iterable[StorageEntry]) -> dict[str, int]:
        """Bytes by category."""
        totals = dict.fromkeys(CATEGORIES, 0)
        for entry in entries:
            totals[category_of(entry)] += entry.size
        return totals

    def _mark_model(self, model: torch.nn.Module) -> None:
        for name, buffer in model.named_buffers():
            self._mark((buffer,), "kv_cache" if _CACHE_NAME.search(name) else "weights")
        for param in model.parameters():
            self._mark((param,), "weights")
            self._mark((param.grad,), "gradients")

    def _mark_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            for param in group["params"]:
                self._mark((param,), "weights")
                self._mark((param.grad,), "gradients")
        for state in optimizer.state.values():
            self._mark(state.values() if isinstance(state, dict) else (), "optimizer")

    def _mark(self, values: Iterable[Any], category: str) -> None:
        for value in values:
            if isinstance(value, torch.Tensor):
                entry = self._memory.book.find(value)
                if entry is not None:
                    entry.category = category

    def _watch_caches(self) -> None:
        """Caches of transformers announce themselves once the library is there."""
        module = sys.modules.get("transformers.cache_utils")
        if module is None or self._watching:
            return
        self._watching = True
        plain, caches = module.Cache.__init__, self._caches
        # By type: `isinstance` asks each object for its class as well, and torch.distributed.reduce_op warns of that.
        caches.update(thing for thing in gc.get_objects() if issubclass(type(thing), module.Cache))

        def construct(cache: Any, *args: Any, **kwargs: Any) -> None:
            plain(cache, *args, **kwargs)
            caches.add(cache)

        module.Cache.__init__ = construct


def category_of(entry: StorageEntry) -> str:
    """One of CATEGORIES."""
    if entry.category is not None:
        return entry.category
    if entry.phase == "backward" and entry.module and not entry.module.startswith("backward of"):
        return "activations"  # made anew by checkpointing
    return _BY_BIRTH.get(entry.phase, "temporaries")
