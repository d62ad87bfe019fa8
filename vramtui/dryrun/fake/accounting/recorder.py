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
from vramtui.dryrun.fake.accounting.phases import PhaseTracker
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.result import CATEGORIES, CodePlace, DryRun, LiveAllocation, Progress, TracePoint, TraceRow

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


class Categories:
    """Marks entries by their holders; without one, the phase of birth decides."""

    def __init__(self, memory: SimulatedMemory, phases: PhaseTracker) -> None:
        self._memory, self._phases = memory, phases
        self._caches: weakref.WeakSet[Any] = weakref.WeakSet()
        self._watching = False

    def mark(self) -> None:
        for model in self._phases.models:
            for name, buffer in model.named_buffers():
                self._mark((buffer,), "kv_cache" if _CACHE_NAME.search(name) else "weights")
            self._mark_parameters(model.parameters())
        for optimizer in self._phases.optimizers:
            for group in optimizer.param_groups:
                self._mark_parameters(group["params"])
            for state in optimizer.state.values():
                self._mark(state.values() if isinstance(state, dict) else (), "optimizer")
        module = sys.modules.get("transformers.cache_utils")
        if module is not None and not self._watching:  # its caches announce themselves from now on
            self._watching = True
            plain, caches = module.Cache.__init__, self._caches
            # By type: `isinstance` asks each object for its class too, and torch.distributed.reduce_op warns of that.
            caches.update(thing for thing in gc.get_objects() if issubclass(type(thing), module.Cache))

            def construct(cache: Any, *args: Any, **kwargs: Any) -> None:
                plain(cache, *args, **kwargs)
                caches.add(cache)

            module.Cache.__init__ = construct
        for cache in list(self._caches):
            for layer in getattr(cache, "layers", ()):
                self._mark((getattr(layer, "keys", None), getattr(layer, "values", None)), "kv_cache")

    def sums(self, entries: Iterable[StorageEntry]) -> dict[str, int]:
        totals = dict.fromkeys(CATEGORIES, 0)
        for entry in entries:
            totals[category_of(entry)] += entry.size
        return totals

    def _mark_parameters(self, parameters: Iterable[torch.Tensor]) -> None:
        for parameter in parameters:
            self._mark((parameter,), "weights")
            self._mark((parameter.grad,), "gradients")

    def _mark(self, values: Iterable[Any], category: str) -> None:
        for value in values:
            entry = self._memory.book.find(value) if isinstance(value, torch.Tensor) else None
            if entry is not None:
                entry.category = category


def category_of(entry: StorageEntry) -> str:
    if entry.category is not None:
        return entry.category
    if entry.phase == "backward" and entry.module and not entry.module.startswith("backward of"):
        return "activations"  # made anew by checkpointing
    return _BY_BIRTH.get(entry.phase, "temporaries")


class GarbageWatch:
    """Called by the collector at its start and end; runs that the code asks for do not count.

    A trace makes objects of its own, so the collector runs at other moments than in the job: memory that objects in
    cycles hold may go earlier or later there.
    """

    def __init__(self, patches: Patches, memory: SimulatedMemory) -> None:
        self.is_asked, self.most = False, 0
        self._memory, self._before = memory, 0
        plain = gc.collect

        def collect(*args: Any, **kwargs: Any) -> int:
            self.is_asked = True
            try:
                return plain(*args, **kwargs)
            finally:
                self.is_asked = False

        patches.set(gc, "collect", collect)
        gc.callbacks.append(self)

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        allocated = self._memory.allocator.stats.allocated
        if phase == "start":
            self._before = allocated
        elif not self.is_asked:
            self.most = max(self.most, self._before - allocated)

    def notes(self) -> Iterator[str]:
        if self.most > LEAST_SHARE * self._memory.peak:
            yield GARBAGE_NOTE.format(format_bytes(self.most))

    def remove(self) -> None:
        gc.callbacks.remove(self)


class TraceRecorder:
    """Takes a row at each phase's end; `progress` is called after it."""

    def __init__(self, memory: SimulatedMemory, progress: Callable[[Progress], None]) -> None:
        self.rows: list[TraceRow] = []
        self.categories: Categories | None = None
        self.garbage: GarbageWatch | None = None
        self._memory, self._progress = memory, progress

    def ended(self, phase: str, step: int) -> None:
        """A phase has ended: take its row and begin its successor's peaks."""
        stats = self._memory.allocator.stats
        assert self.categories is not None
        self.categories.mark()
        peak_allocated, peak_reserved = self._memory.end_phase()
        self.rows.append(
            TraceRow(
                phase=phase,
                step=step,
                allocated=stats.allocated,
                reserved=stats.reserved,
                peak_allocated=peak_allocated,
                peak_reserved=peak_reserved,
                categories=self.categories.sums(self._memory.live()),
            )
        )
        self._progress(Progress(phase=phase, step=step, allocated=stats.allocated, peak_allocated=peak_allocated))

    def during(self, phase: str, step: int, place: CodePlace) -> None:
        """Report that a phase goes on, and where the code is; the step is -1 before the first."""
        stats = self._memory.allocator.stats
        allocated, peak = stats.allocated, stats.peak_allocated
        self._progress(Progress(phase=phase, step=step, allocated=allocated, peak_allocated=peak, place=place))

    def result(self, context: int, out_of_memory: str | None = None) -> DryRun:
        """The answer, after the code has ended; `context` is the CUDA context in bytes."""
        memory, card = self._memory, self._memory.device
        assert self.categories is not None
        self.categories.mark()
        at_peak = memory.live(memory.peak_event)
        peak_row = max(self.rows, key=lambda row: row.peak_allocated, default=None)
        refused = memory.refused
        peak_reserved = max((row.peak_reserved for row in self.rows), default=0)
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
            peak_categories=self.categories.sums(at_peak),
            largest=tuple(
                LiveAllocation(
                    bytes=entry.size,
                    category=category_of(entry),
                    operator=str(entry.operator),
                    module=entry.module,
                    line=entry.line,
                    phase=entry.phase,
                )
                for entry in sorted(at_peak, key=lambda entry: -entry.size)[:_LARGEST]
            ),
            warnings=tuple(self._warnings(caught=out_of_memory is None)),
            bounded=memory.bounded,
            out_of_memory=out_of_memory,
            asked=refused.segment_size if refused is not None else None,
            missing=refused.missing if refused is not None else None,
            series=_thinned(memory.changes),
            events=memory.events,
        )

    def _warnings(self, *, caught: bool) -> Iterator[str]:
        memory = self._memory
        yield from memory.warnings.values()
        yield from _differing_batches(self.rows)
        if caught and memory.refused is not None:
            asked, missing = (format_bytes(size) for size in (memory.refused.segment_size, memory.refused.missing))
            line = memory.refused_at and f" at {memory.refused_at}"
            yield (
                f"the code caught PyTorch's out-of-memory error{line}, which asked for {asked} with {missing} too few, "
                "and went on: these are the figures of what ran all the same"
            )
        if self.garbage is not None:
            yield from self.garbage.notes()


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
