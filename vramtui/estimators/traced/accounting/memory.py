"""The simulated device's memory: the allocator, and a journal of everything that ever lived in it."""

from collections.abc import Callable
from typing import Any

import torch

from vramtui.estimators.allocator import AllocatorOutOfMemory
from vramtui.estimators.traced.accounting.storages import StorageBook, StorageEntry


class SimulatedMemory:
    """Allocator, journal and storages in one place.

    Args:
        allocator: a `CachingAllocator` or anything with its `malloc`, `free`, `block_size` and `stats`.
        device: facts of the card that kernels choose by.
    """

    def __init__(self, allocator: Any, device: Any) -> None:
        self.allocator = allocator
        self.device = device
        self.book = StorageBook(self._born, self.release)
        self.journal: list[StorageEntry] = []
        self._shared: set[int] = set()
        self._alive: dict[int, StorageEntry] = {}
        self.changes: list[tuple[int, int]] = []
        self.events = 0
        self.peak_event = 0
        self.peak = 0
        self.phase: Callable[[], str] = lambda: "model"
        self.operator: Any = None
        self.stream = 0
        self.warnings: list[str] = []
        self.lost_allocated = 0
        self.lost_reserved = 0
        self.locate: Callable[[StorageEntry], None] = lambda _entry: None
        self.on_event: Callable[[str, StorageEntry], None] | None = None

    def take(self, nbytes: int, category: str) -> StorageEntry:
        """Memory that is no tensor's: workspaces and kernels' temporaries."""
        entry = StorageEntry(nbytes)
        entry.category = category
        if nbytes:
            self._born(entry)
        return entry

    def _born(self, entry: StorageEntry) -> None:
        allocator = self.allocator
        try:
            entry.block = allocator.malloc(entry.nbytes, self.stream)
        except AllocatorOutOfMemory as error:
            raise torch.OutOfMemoryError(str(error)) from None
        entry.size = allocator.block_size(entry.block)
        self.events += 1
        entry.birth = self.events
        entry.phase = self.phase()
        entry.operator = str(self.operator)
        self.locate(entry)
        self.journal.append(entry)
        self._alive[entry.birth] = entry
        if allocator.stats.allocated > self.peak:
            self.peak = allocator.stats.allocated
            self.peak_event = self.events
        self._note("a", entry)

    def warn(self, sentence: str) -> None:
        """Say once what the figures leave out."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        """Another stream uses this memory too; its work is taken to be done by the time the memory is given back."""
        entry = self.book.find(tensor)
        if entry is not None and entry.block is not None:
            self.allocator.record_stream(entry.block, stream.stream_id)
            self._shared.add(entry.block)

    def note_peaks(self) -> None:
        """The user's code is about to reset the allocator's peaks: keep them for the phase's own row."""
        self.lost_allocated = max(self.lost_allocated, self.allocator.stats.peak_allocated)
        self.lost_reserved = max(self.lost_reserved, self.allocator.stats.peak_reserved)

    def release(self, entry: StorageEntry) -> None:
        """Give an entry's block back."""
        if entry.block is None:
            return
        self.allocator.free(entry.block)
        if entry.block in self._shared:
            self._shared.discard(entry.block)
            self.allocator.complete(entry.block)
        entry.block = None
        entry.mirror = None
        self.events += 1
        entry.death = self.events
        self._alive.pop(entry.birth, None)
        self._note("f", entry)

    def _note(self, kind: str, entry: StorageEntry) -> None:
        stats = self.allocator.stats
        self.changes.append((stats.allocated, stats.reserved))
        if self.on_event:
            self.on_event(kind, entry)

    def live(self, event: int | None = None) -> list[StorageEntry]:
        """What was alive just after event number `event`; now, if that is None."""
        if event is None:
            return list(self._alive.values())
        return [e for e in self.journal if e.birth <= event and (e.death is None or e.death > event)]
