"""The simulated device's memory: the allocator, and a journal of everything that ever lived in it."""

from collections.abc import Callable
from typing import Any

from vramtui.estimators.traced.storages import Entry, StorageBook


class Memory:
    """Allocator, journal and storages in one place.

    Args:
        allocator: a `CachingAllocator` or anything with its `malloc`, `free`, `block_size` and `stats`.
        device: facts of the card that kernels choose by.
    """

    def __init__(self, allocator: Any, device: Any) -> None:
        self.allocator = allocator
        self.device = device
        self.book = StorageBook(self._born, self.release)
        self.journal: list[Entry] = []
        self.events = 0
        self.peak_event = 0
        self.peak = 0
        self.phase = "model"
        self.operator: Any = None
        self.stream = 0
        self.warnings: list[str] = []
        self.lost_allocated = 0
        self.lost_reserved = 0
        self.locate: Callable[[Entry], None] = lambda _entry: None
        self.on_event: Callable[[str, Entry], None] | None = None

    def take(self, nbytes: int, category: str) -> Entry:
        """Memory that is no tensor's: workspaces and kernels' temporaries."""
        entry = Entry(nbytes)
        entry.category = category
        if nbytes:
            self._born(entry)
        return entry

    def _born(self, entry: Entry) -> None:
        allocator = self.allocator
        entry.block = allocator.malloc(entry.nbytes, self.stream)
        entry.size = allocator.block_size(entry.block)
        self.events += 1
        entry.birth = self.events
        entry.phase = self.phase
        entry.operator = str(self.operator)
        self.locate(entry)
        self.journal.append(entry)
        if allocator.stats.allocated > self.peak:
            self.peak = allocator.stats.allocated
            self.peak_event = self.events
        if self.on_event:
            self.on_event("a", entry)

    def warn(self, sentence: str) -> None:
        """Say once what the figures leave out."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def note_peaks(self) -> None:
        """The user's code is about to reset the allocator's peaks: keep them for the phase's own row."""
        self.lost_allocated = max(self.lost_allocated, self.allocator.stats.peak_allocated)
        self.lost_reserved = max(self.lost_reserved, self.allocator.stats.peak_reserved)

    def release(self, entry: Entry) -> None:
        """Give an entry's block back."""
        if entry.block is None:
            return
        self.allocator.free(entry.block)
        entry.block = None
        self.events += 1
        entry.death = self.events
        if self.on_event:
            self.on_event("f", entry)

    def live(self, event: int | None = None) -> list[Entry]:
        """What was alive just after event number `event`; now, if that is None."""
        at = self.events if event is None else event
        return [e for e in self.journal if e.birth <= at and (e.death is None or e.death > at)]
