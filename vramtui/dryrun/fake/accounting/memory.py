"""The simulated device's memory: the allocator, and a journal of everything that ever lived in it."""

import math
import os
from collections.abc import Callable
from typing import Any

import torch

from vramtui.dryrun.fake.accounting.storages import StorageBook, StorageEntry
from vramtui.dryrun.fake.dispatch.known_results import KnownResults
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.allocator.failure import AllocatorOutOfMemoryError

_EVENTS_BETWEEN_SIGNS = 2000  # about a second's
_PEAKS = ("allocated", "reserved", "active", "requested", "segments")


def _configured() -> str:
    """The allocator settings in this process' environment, by the newer name first."""
    return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


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
        self.known_results = KnownResults()
        self.journal: list[StorageEntry] = []
        self._shared: set[int] = set()
        self._alive: dict[int, StorageEntry] = {}
        self.changes: list[tuple[int, int]] = []
        self.events = 0
        self.peak_event = 0
        self.peak = 0
        self.unseen_share = 0.0  # of reserved, what libraries may hold beyond it
        self.phase: Callable[[], str] = lambda: "model"
        self.operator: Any = None
        self.operators = 0  # how many were followed
        self.stream = 0
        self.convolutions_tried: set[Any] = set()  # those that cudnn.benchmark has timed
        self.refused: AllocatorOutOfMemoryError | None = None  # the last request that was too much
        self.refused_at = ""  # the code's line that made it
        self.guesses_read: set[str] = set()  # lines that read a value which follows from data
        self.loop_decided = ""  # the last of them at which such a value decided whether a loop goes on
        self.warnings: list[str] = []
        self.emulated_better: dict[str, None] = {}  # in the order in which they were met
        self._warned: set[str] = set()
        self.sign_of_life: Callable[[], None] = lambda: None
        self.share = 1.0
        self.bounded = False
        self.user_line: Callable[[], str] = str
        self._of_phase = dict.fromkeys(_PEAKS, 0)
        self._of_code = dict.fromkeys(_PEAKS, 0)
        self._conf = _configured()
        self.locate: Callable[[StorageEntry], None] = lambda _entry: None

    def take(self, nbytes: int, category: str) -> StorageEntry:
        """Memory that is no tensor's: workspaces and kernels' temporaries."""
        entry = StorageEntry(nbytes)
        entry.category = category
        if nbytes:
            self._born(entry)
        return entry

    def _born(self, entry: StorageEntry) -> None:
        if not self.events and _configured() != self._conf:
            self.reconfigure(_configured())  # set by the code itself, before its first use of CUDA
        allocator = self.allocator
        try:
            entry.block = allocator.malloc(entry.nbytes, self.stream)
        except AllocatorOutOfMemoryError as error:
            self.refused, self.refused_at = error, self.user_line()
            raise torch.OutOfMemoryError(str(error)) from None
        entry.size = allocator.block_size(entry.block)
        self.events += 1
        if not self.events % _EVENTS_BETWEEN_SIGNS:
            self.sign_of_life()
        entry.birth = self.events
        entry.phase = self.phase()
        entry.operator = self.operator
        self.locate(entry)
        self.journal.append(entry)
        self._alive[entry.birth] = entry
        if allocator.stats.allocated > self.peak:
            self.peak = allocator.stats.allocated
            self.peak_event = self.events
        self.changes.append((allocator.stats.allocated, allocator.stats.reserved))

    def warn(self, sentence: str, same: str = "", *, better: str = "") -> None:
        """Say once what the figures leave out.

        Args:
            sentence: what it is.
            same: sentences that are the same count as one.
            better: what of it an emulated card takes from PyTorch itself, in a few words; empty where nothing.
        """
        if better:
            self.emulated_better[better] = None
        key = same or sentence
        if key not in self._warned:
            self._warned.add(key)
            self.warnings.append(sentence)

    def bound(self, places: int, operator: Any, *, share: bool = True) -> int:
        """How many of `places` are taken where data decides; the line is told in the notes.

        Args:
            places: how many there can be at most.
            operator: what the code asked for.
            share: whether the share that the user gave counts for it.
        """
        taken = math.ceil(places * self.share) if share else places
        if places:
            name = operator.overloadpacket.__name__.strip("_")
            line = self.user_line()
            part = "all" if taken == places else f"{self.share:.0%}"
            self.bounded = True
            self.warn(
                f"bounded: what {name}{f' at {line}' if line else ''} gives depends on data; {part} of "
                f"{places:,} places are counted"
                + ("" if not share or self.share < 1 else " (--share 0.15 counts that part)"),
                same=f"{name} {line}",
            )
        return taken

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        """Another stream uses this memory too; its work is taken to be done by the time the memory is given back."""
        entry = self.book.find(tensor)
        if entry is not None and entry.block is not None:
            self.allocator.record_stream(entry.block, stream.stream_id)
            self._shared.add(entry.block)

    def end_phase(self) -> tuple[int, int]:
        """The phase's peaks of allocated and reserved; the next one's begin. What the code reads goes on."""
        peaks = self._highest(self._of_phase)
        self._of_code = self._highest(self._of_code)
        self._of_phase = dict.fromkeys(_PEAKS, 0)
        self.allocator.reset_peaks()
        return peaks["allocated"], peaks["reserved"]

    def reset_peaks(self) -> None:
        """The code resets the peaks that it reads (`torch.cuda.reset_peak_memory_stats`); the phase keeps its own."""
        self._of_phase = self._highest(self._of_phase)
        self._of_code = dict.fromkeys(_PEAKS, 0)
        self.allocator.reset_peaks()

    def peaks_since_reset(self) -> dict[str, int]:
        """What `torch.cuda.max_memory_allocated` and the like tell the code, by counter."""
        return self._highest(self._of_code)

    def _highest(self, before: dict[str, int]) -> dict[str, int]:
        stats = self.allocator.stats
        return {name: max(most, getattr(stats, f"peak_{name}")) for name, most in before.items()}

    def reconfigure(self, conf: str) -> None:
        """Take other allocator settings, as long as nothing has been allocated.

        Raises:
            UserError: the settings are none.
        """
        if not self.events:
            self.allocator = self.allocator.with_config(AllocatorConfig.parse(conf))

    def clear_workspaces(self) -> None:
        """`torch._C._cuda_clearCublasWorkspaces`: they are taken again by the next product."""
        self.device.workspaces.clear()

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
        self.changes.append((self.allocator.stats.allocated, self.allocator.stats.reserved))

    def lay_anew(self, tensor: torch.Tensor) -> bool:
        """What a tensor holds moves into new memory, and the old is given back; False where that is more."""
        entry = self.book.find(tensor)
        if entry is None or not entry.birth or entry.nbytes != tensor.numel() * tensor.element_size():
            return False
        self._take_anew(tensor.untyped_storage()._cdata, entry, entry.nbytes)
        self.release(entry)
        return True

    def _take_anew(self, key: int, old: StorageEntry, nbytes: int) -> None:
        """Other memory for the storage of `old`."""
        entry = StorageEntry(nbytes)
        entry.ref, entry.category = old.ref, old.category
        self.book.entries[key] = entry
        self._born(entry)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """The code gave a storage another size, as FSDP does to free gathered weights (`storage.resize_(0)`)."""
        entry = self.book.entries.get(storage._cdata)
        nbytes = storage.nbytes()
        if entry is None or not entry.birth or (entry.block is not None and entry.nbytes == nbytes):
            return  # not the card's, or as large as before
        self.release(entry)
        if nbytes:
            self._take_anew(storage._cdata, entry, nbytes)

    def live(self, event: int | None = None) -> list[StorageEntry]:
        """What was alive just after event number `event`; now, if that is None."""
        if event is None:
            return list(self._alive.values())
        return [e for e in self.journal if e.birth <= event and (e.death is None or e.death > event)]
