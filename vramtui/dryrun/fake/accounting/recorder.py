"""A dry run's journal as its answer: categories of bytes, rows, the peak, the largest allocations, the fine trace."""

import gc
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import torch

from vramtui.core.base.units import format_bytes
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory, StorageEntry
from vramtui.dryrun.fake.accounting.phases import PhaseTracker, Whereabouts
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.result import CATEGORIES, DryRun, LiveAllocation, Progress, TracePoint, TraceRow

_BY_BIRTH = {
    "model": "weights", "optimizer": "optimizer", "input": "inputs", "forward": "activations",
    "backward": "temporaries", "step": "temporaries", "zero_grad": "inputs",
}  # fmt: skip
_CACHE_NAME = re.compile(r"(^|[._])(k|v|kv|key|value|key_value)s?_?cache", re.IGNORECASE)
_LARGEST = 10
_POINTS = 2000
ALIKE = 1.02  # batches within this of one another are of one size: blocks are rounded
LEAST_SHARE = 0.01  # of the peak; less does not matter
GARBAGE_NOTE = (
    "objects in cycles, as a model that refers to itself, held up to {} of the card until Python's collector ran; "
    "when it runs depends on how many objects are made, which differs in a trace: the peak may be off by as much "
    "either way, and a `gc.collect()` after the last use of the model makes it certain"
)


class TraceRecorder:
    """Takes a row at each phase's end, and knows what the bytes are; `progress` is called after it."""

    def __init__(
        self, memory: SimulatedMemory, where: Whereabouts, steps: int, progress: Callable[[Progress], None]
    ) -> None:
        self.rows: list[TraceRow] = []
        self.phases = PhaseTracker(memory, where, steps, self._ended)
        self._memory, self._progress = memory, progress
        self._caches: weakref.WeakSet[Any] = weakref.WeakSet()
        self._is_watching_caches = self._is_collection_asked = False
        self._most_garbage = self._before_collection = 0

    def install(self, patches: Patches) -> None:
        self.phases.install(patches)
        plain = gc.collect

        def collect(*args: Any, **kwargs: Any) -> int:
            self._is_collection_asked = True
            try:
                return plain(*args, **kwargs)
            finally:
                self._is_collection_asked = False

        patches.set(gc, "collect", collect)
        gc.callbacks.append(self._collects)

    def remove(self) -> None:
        gc.callbacks.remove(self._collects)
        self.phases.remove()

    def _collects(self, phase: str, _info: dict[str, int]) -> None:
        """Called by Python's collector at its start and end; runs that the code asks for do not count.

        A trace makes objects of its own, so the collector runs at other moments than in the job: memory that objects in
        cycles hold may go earlier or later there.
        """
        allocated = self._memory.allocator.stats.allocated
        if phase == "start":
            self._before_collection = allocated
        elif not self._is_collection_asked:
            self._most_garbage = max(self._most_garbage, self._before_collection - allocated)

    def _mark(self) -> None:
        """Mark entries by their holders; without one, the phase of birth decides."""

        def mark(values: Iterable[Any], category: str) -> None:
            for value in values:
                entry = self._memory.find(value) if isinstance(value, torch.Tensor) else None
                if entry is not None:
                    entry.category = category

        parameters: list[torch.Tensor] = []
        for model in self.phases.models:
            for name, buffer in model.named_buffers():
                mark((buffer,), "kv_cache" if _CACHE_NAME.search(name) else "weights")
            parameters += model.parameters()
        for optimizer in self.phases.optimizers:
            for group in optimizer.param_groups:
                parameters += group["params"]
        mark(parameters, "weights")
        mark((parameter.grad for parameter in parameters), "gradients")
        for optimizer in self.phases.optimizers:
            for state in optimizer.state.values():
                mark(state.values() if isinstance(state, dict) else (), "optimizer")
        module = sys.modules.get("transformers.cache_utils")
        if module is not None and not self._is_watching_caches:  # its caches announce themselves from now on
            self._is_watching_caches = True
            plain, caches = module.Cache.__init__, self._caches
            # By type: `isinstance` asks each object for its class too, and torch.distributed.reduce_op warns of that.
            caches.update(thing for thing in gc.get_objects() if issubclass(type(thing), module.Cache))

            def construct(cache: Any, *args: Any, **kwargs: Any) -> None:
                plain(cache, *args, **kwargs)
                caches.add(cache)

            module.Cache.__init__ = construct
        for cache in list(self._caches):
            for layer in getattr(cache, "layers", ()):
                mark((getattr(layer, "keys", None), getattr(layer, "values", None)), "kv_cache")

    def _ended(self, phase: str, step: int) -> None:
        """A phase has ended: take its row and begin its successor's peaks."""
        stats = self._memory.allocator.stats
        self._mark()
        peak_allocated, peak_reserved = self._memory.end_phase()
        self.rows.append(
            TraceRow(
                phase=phase,
                step=step,
                allocated=stats.allocated,
                reserved=stats.reserved,
                peak_allocated=peak_allocated,
                peak_reserved=peak_reserved,
                categories=_sums(list(self._memory.alive.values())),
            )
        )
        self._progress(Progress(phase=phase, step=step, allocated=stats.allocated, peak_allocated=peak_allocated))

    def result(self, context: int, out_of_memory: str | None, *, is_cut: bool) -> DryRun:
        """The answer, after the code has ended, or was cut; `context` is the CUDA context in bytes."""
        memory, card, refused = self._memory, self._memory.device, self._memory.refused
        self._mark()
        at_peak = memory.alive_at_peak()
        peak_row = max(self.rows, key=lambda row: row.peak_allocated, default=None)
        peak_reserved = max((row.peak_reserved for row in self.rows), default=0)
        notes = [*memory.warnings.values(), *_differing_batches(self.rows)]
        if out_of_memory is None and refused is not None:
            asked, missing = (format_bytes(size) for size in (refused.segment_size, refused.missing))
            line = memory.refused_at and f" at {memory.refused_at}"
            notes.append(
                f"the code caught PyTorch's out-of-memory error{line}, which asked for {asked} with {missing} too few, "
                "and went on: these are the figures of what ran all the same"
            )
        if self._most_garbage > LEAST_SHARE * memory.peak:
            notes.append(GARBAGE_NOTE.format(format_bytes(self._most_garbage)))
        return DryRun(
            torch=str(torch.__version__),
            device=card.name,
            capability=card.capability,
            total_memory=card.total_memory,
            timeline=tuple(self.rows),
            peak_allocated=peak_row.peak_allocated if peak_row else 0,
            peak_reserved=peak_reserved,
            peak_phase=peak_row.phase if peak_row else "",
            peak_step=peak_row.step if peak_row else -1,
            process=peak_reserved + context,
            unseen=int(peak_reserved * memory.unseen_share),
            context=context,
            peak_categories=_sums(at_peak),
            largest=tuple(
                LiveAllocation(
                    bytes=entry.size,
                    category=_category_of(entry),
                    operator=str(entry.operator),
                    module=entry.module,
                    line=entry.line,
                    phase=entry.phase,
                )
                for entry in sorted(at_peak, key=lambda entry: -entry.size)[:_LARGEST]
            ),
            warnings=tuple(notes),
            bounded=memory.bounded,
            cut_short=is_cut,
            out_of_memory=out_of_memory,
            exit_code=int(out_of_memory is not None),
            asked=refused.segment_size if refused is not None else None,
            missing=refused.missing if refused is not None else None,
            series=_thinned(memory.changes),
            events=len(memory.changes),
        )


def _category_of(entry: StorageEntry) -> str:
    if entry.category is not None:
        return entry.category
    if entry.phase == "backward" and entry.module and not entry.module.startswith("backward of"):
        return "activations"  # made anew by checkpointing
    return _BY_BIRTH.get(entry.phase, "temporaries")


def _sums(entries: Iterable[StorageEntry]) -> dict[str, int]:
    totals = dict.fromkeys(CATEGORIES, 0)
    for entry in entries:
        totals[_category_of(entry)] += entry.size
    return totals


def _differing_batches(rows: list[TraceRow]) -> Iterator[str]:
    """A note if the batches of the steps were of different sizes and that moves the peak."""
    trained = [row for row, after in pairwise(rows) if row.phase == "forward" and after.phase == "backward"]
    forwards = trained or [row for row in rows if row.phase == "forward"]  # validation's are of another size
    sizes = [row.categories.get("inputs", 0) for row in forwards]
    activations = [size + row.categories.get("activations", 0) for size, row in zip(sizes, forwards, strict=True)]
    peak = max((row.peak_allocated for row in rows), default=0)
    if sizes and max(sizes) > ALIKE * min(sizes) and max(activations) - min(activations) > (ALIKE - 1) * peak:
        yield (
            f"batches differ: those of the {len(sizes)} steps seen held {format_bytes(min(sizes))} to "
            f"{format_bytes(max(sizes))} of inputs; a larger one of the epoch needs more"
        )


def _thinned(changes: list[tuple[int, int]]) -> tuple[TracePoint, ...]:
    """Twice _POINTS points or fewer: of each stretch of events its highest and its last."""
    every = max(1, len(changes) // _POINTS)
    chosen: set[int] = set()
    for start in range(0, len(changes), every):
        stretch = range(start, min(start + every, len(changes)))
        chosen |= {max(stretch, key=lambda i: changes[i][0]), stretch[-1]}
    return tuple(TracePoint(event=i + 1, allocated=changes[i][0], reserved=changes[i][1]) for i in sorted(chosen))
