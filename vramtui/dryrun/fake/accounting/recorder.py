"""Turns a trace's journal into its answer: rows, the peak, the largest allocations, the fine trace."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch

from vramtui.core.base.units import format_bytes
from vramtui.dryrun.fake.accounting.categories import Categories, category_of
from vramtui.dryrun.fake.accounting.garbage import GarbageWatch
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory, StorageEntry
from vramtui.dryrun.result import (
    CodePlace,
    DryRun,
    LiveAllocation,
    Progress,
    TracePoint,
    TraceRow,
)

_LARGEST = 10
_POINTS = 2000
ALIKE = 1.02  # batches within this of one another are of one size: blocks are rounded


class TraceRecorder:
    """Takes a row at each phase's end.

    Args:
        memory: what is recorded.
        progress: told of each phase that has ended.
    """

    def __init__(self, memory: SimulatedMemory, progress: Callable[[Progress], None]) -> None:
        self.rows: list[TraceRow] = []
        self.categories: Categories | None = None
        self.garbage: GarbageWatch | None = None
        self._memory = memory
        self._progress = progress

    def ended(self, phase: str, step: int) -> None:
        """A phase has ended: take its row and begin its successor's peaks."""
        memory = self._memory
        stats = memory.allocator.stats
        assert self.categories is not None
        self.categories.mark()
        peak_allocated, peak_reserved = memory.end_phase()
        row = TraceRow(
            phase=phase,
            step=step,
            allocated=stats.allocated,
            reserved=stats.reserved,
            peak_allocated=peak_allocated,
            peak_reserved=peak_reserved,
            categories=self.categories.sums(memory.live()),
        )
        self.rows.append(row)
        self._progress(Progress(phase=phase, step=step, allocated=row.allocated, peak_allocated=peak_allocated))

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
            largest=tuple(_live_allocation(entry) for entry in sorted(at_peak, key=lambda e: -e.size)[:_LARGEST]),
            warnings=(
                *memory.warnings.values(),
                *_differing_batches(self.rows),
                *(() if out_of_memory is not None else _caught(memory)),
                *(() if self.garbage is None else self.garbage.notes()),
            ),
            emulated_better=tuple(memory.emulated_better),
            bounded=memory.bounded,
            out_of_memory=out_of_memory,
            asked=refused.segment_size if refused is not None else None,
            missing=refused.missing if refused is not None else None,
            series=_thinned(memory),
            events=memory.events,
        )


def _differing_batches(rows: list[TraceRow]) -> Iterator[str]:
    """A note where the batches of the steps seen were not of one size and it moves the peak: an epoch's largest is most
    likely another.
    """
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


def _caught(memory: SimulatedMemory) -> Iterator[str]:
    """A note where the card was too small and the code went on all the same."""
    if memory.refused is not None:
        asked, missing = (format_bytes(size) for size in (memory.refused.segment_size, memory.refused.missing))
        line = memory.refused_at and f" at {memory.refused_at}"
        yield (
            f"the code caught PyTorch's out-of-memory error{line}, which asked for {asked} with {missing} too few, and "
            "went on: these are the figures of what ran all the same"
        )


def _live_allocation(entry: StorageEntry) -> LiveAllocation:
    return LiveAllocation(
        bytes=entry.size,
        category=category_of(entry),
        operator=str(entry.operator),
        module=entry.module,
        line=entry.line,
        phase=entry.phase,
    )


def _thinned(memory: SimulatedMemory) -> tuple[TracePoint, ...]:
    """At most twice _POINTS points: of each stretch of events its highest and its last."""
    changes = memory.changes
    every = max(1, len(changes) // _POINTS)
    points: list[TracePoint] = []
    for start in range(0, len(changes), every):
        stretch = range(start, min(start + every, len(changes)))
        highest = max(stretch, key=lambda i: changes[i][0])
        points += [
            TracePoint(event=i + 1, allocated=changes[i][0], reserved=changes[i][1]) for i in {highest, stretch[-1]}
        ]
    return tuple(sorted(points, key=lambda point: point.event))
