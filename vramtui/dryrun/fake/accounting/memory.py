"""The simulated GPU's memory: the allocator, the storages that hold its blocks, and what was held when."""

import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.core.estimate.devices import Device
from vramtui.dryrun.fake.device.device import SIM
from vramtui.dryrun.result import BOUNDED, PLACES_COUNTED
from vramtui.estimators.allocator.caching import AllocatorOutOfMemoryError, CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.estimators.torch_facts.cublas import KEPT_BEFORE, UNIFIED, lt_workspace_bytes, workspace_bytes
from vramtui.estimators.torch_facts.releases import release_of


@dataclass(slots=True, eq=False)
class StorageEntry:
    """One storage, or one piece of memory that an operator takes for itself."""

    nbytes: int  # asked for; `size` are those of the allocator's `block`, None for memory that is not the device's
    address: int = 0  # the answer of `data_ptr`; 0 until it is asked for
    block: int | None = None
    size: int = 0
    birth: int = 0  # how many events there were once it was made
    phase: str = ""  # as `operator`, `module`, `line`: where it was made
    category: str | None = None  # what the bytes are; None until that is known
    operator: Any = None
    module: str = ""
    line: str = ""
    places: int | None = None  # of an unknown mask, as many as a write had values for; of an argmax, all there can be
    ref: Any = None


def _configured() -> str:
    """The allocator settings in this process' environment, by the newer name first."""
    return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


class SimulatedMemory:
    """Follows every storage from its first sight to its death."""

    def __init__(self, allocator: CachingAllocator, device: Device, where: Any) -> None:
        self.allocator, self.device, self.limits, self.where = allocator, device, card_limits(device), where
        self.workspaces = Workspaces(self, device.capability, release_of(torch.__version__))
        self.user_line: Callable[[], str] = where.user_line
        self.phase: Callable[[], str] = lambda: "model"
        self.values: Any = None  # `dispatch.values.FakeValues` of the session
        self.entries: dict[int, StorageEntry] = {}  # the storages that are there, by their `_cdata`
        self.changes: list[tuple[int, int]] = []  # bytes allocated and reserved after each event
        self.peak = self._peak_event = self.stream = 0
        self.unseen_share = 0.0  # of reserved, for what libraries may hold beyond it
        self.operator: Any = None  # the last that was followed
        self.convolutions_tried: set[Any] = set()  # those that cudnn.benchmark has timed
        self.refused: AllocatorOutOfMemoryError | None = None  # the last request that was too much
        self.refused_at = ""  # the code's line that made it
        self.guesses_read: dict[str, str] = {}  # lines that read an unknown value, and the file of PyTorch that does
        self.guess_uses: dict[str, set[tuple[int, str]]] = {}  # of what is read there, as in `dryrun/values.py`
        self.requests: Counter[int] = Counter()  # how often each number of bytes was asked for
        self.warnings: dict[str, str] = {}
        self.bounded = False
        self._conf, self._next_address = _configured(), 0x7F00_0000_0000
        self._shared: set[int] = set()
        self.alive: dict[int, StorageEntry] = {}  # by their birth
        # Of those that have died only the ones of the peak are kept.
        self._died: list[StorageEntry] = []
        self._phase_began = 0, (0, 0)  # how many events there were by then, and the bytes

    def find(self, tensor: torch.Tensor) -> StorageEntry | None:
        """The entry of `tensor`'s storage, if it has been seen; None for a sparse one, which has several."""
        try:
            return self.entries.get(tensor.untyped_storage()._cdata)
        except NotImplementedError:
            return None

    def see(self, tensor: torch.Tensor) -> None:
        """Follow a storage that is new, or that was made elsewhere and is on the card now."""
        storage = tensor.untyped_storage()
        key = storage._cdata

        def gone(_ref: Any) -> None:
            entry = self.entries.pop(key, None)
            if entry is not None:
                self.release(entry)

        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = StorageEntry(storage.nbytes(), ref=weakref.ref(storage, gone))
        if not entry.birth and entry.nbytes and isinstance(tensor, FakeTensor) and tensor._fake_device.type == SIM:
            self._born(entry)

    def address(self, storage: torch.UntypedStorage) -> int:
        """The address of a fake storage: no other has it, and it stays the same as long as the memory does."""
        entry = self.entries.get(storage._cdata)
        if entry is None or not entry.nbytes:
            return storage._cdata if storage.nbytes() else 0
        if not entry.address:
            entry.address, self._next_address = self._next_address, self._next_address + -(-entry.nbytes // 512) * 512
        return entry.address

    def take(self, nbytes: int, category: str) -> StorageEntry:
        entry = StorageEntry(nbytes, category=category)
        if nbytes:
            self._born(entry)
        return entry

    def _born(self, entry: StorageEntry) -> None:
        if not self.changes and _configured() != self._conf:
            self.reconfigure(_configured())  # set by the code itself, before its first use of CUDA
        allocator = self.allocator
        self.requests[entry.nbytes] += 1
        try:
            entry.block = allocator.malloc(entry.nbytes, self.stream)
        except AllocatorOutOfMemoryError as error:
            self.refused, self.refused_at = error, self.user_line()
            raise torch.OutOfMemoryError(str(error)) from None
        entry.size = allocator.block_size(entry.block)
        self.changes.append((allocator.stats.allocated, allocator.stats.reserved))
        entry.birth, entry.phase, entry.operator = len(self.changes), self.phase(), self.operator
        self.where.locate(entry)
        self.alive[entry.birth] = entry
        if allocator.stats.allocated > self.peak:
            self.peak, self._peak_event = allocator.stats.allocated, entry.birth
            self._died.clear()

    def release(self, entry: StorageEntry) -> None:
        if entry.block is None:
            return
        self.allocator.free(entry.block)
        if entry.block in self._shared:
            self._shared.discard(entry.block)
            self.allocator.complete(entry.block)
        entry.block = None
        self.changes.append((self.allocator.stats.allocated, self.allocator.stats.reserved))
        self.alive.pop(entry.birth, None)
        if entry.birth <= self._peak_event:
            self._died.append(entry)

    def warn(self, sentence: str, same: str = "") -> None:
        self.warnings.setdefault(same or sentence, sentence)

    def bound(self, places: int, operator: Any) -> int:
        """Take as many places as there can be, and note the line."""
        if places:
            name, line = operator.overloadpacket.__name__.strip("_"), self.user_line()
            where = f"{name} at {line}" if line else name
            self.bounded = True
            self.warn(f"{BOUNDED}the size of {where} {PLACES_COUNTED} {places:,} places are counted", same=where)
        return places

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        if (entry := self.find(tensor)) is not None and entry.block is not None:
            self.allocator.record_stream(entry.block, stream.stream_id)
            self._shared.add(entry.block)

    def end_phase(self) -> tuple[int, int]:
        since, begun = self._phase_began
        allocated, reserved = zip(begun, *self.changes[since:], strict=True)
        self._phase_began = len(self.changes), (self.allocator.stats.allocated, self.allocator.stats.reserved)
        return max(allocated), max(reserved)

    def reconfigure(self, conf: str) -> None:
        """Take other allocator settings if nothing has been allocated. Raises UserError if they are wrong."""
        if not self.changes:
            self.allocator = self.allocator.with_config(AllocatorConfig.parse(conf))

    def lay_anew(self, tensor: torch.Tensor) -> bool:
        """Move a tensor into new memory and give the old back; False if its storage is larger than it."""
        entry = self.find(tensor)
        is_whole = entry is not None and bool(entry.birth) and entry.nbytes == tensor.nbytes
        if entry is not None and is_whole:
            self._take_anew(tensor.untyped_storage(), entry)
            self.release(entry)
        return is_whole

    def _take_anew(self, storage: torch.UntypedStorage, old: StorageEntry) -> None:
        entry = self.entries[storage._cdata] = StorageEntry(storage.nbytes(), ref=old.ref, category=old.category)
        self._born(entry)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """The code gave a storage another size, as FSDP does to free gathered weights (`storage.resize_(0)`)."""
        entry = self.entries.get(storage._cdata)
        if entry is None or not entry.birth or (entry.block is not None and entry.nbytes == storage.nbytes()):
            return  # not the card's, or as large as before
        self.release(entry)
        if storage.nbytes():
            self._take_anew(storage, entry)

    def alive_at_peak(self) -> list[StorageEntry]:
        entries = (*self.alive.values(), *self._died)
        return sorted((e for e in entries if e.birth <= self._peak_event), key=lambda entry: entry.birth)


class Workspaces:
    """cuBLAS workspaces: one per thread's handle and stream, from the first matrix product; or one for each product."""

    def __init__(self, memory: SimulatedMemory, capability: tuple[int, int], release: tuple[int, int]) -> None:
        self._memory, self._capability, self._keeps = memory, capability, release < KEPT_BEFORE
        self._entries: dict[tuple[str, int, int], StorageEntry] = {}

    def cublas(self) -> None:
        self._hold("cublas", workspace_bytes(self._capability))

    def cublaslt(self) -> None:
        if self._keeps:
            self.cublas()  # its handle is made, and the workspace with it
        if not self._keeps or os.environ.get(UNIFIED) == "0":
            self._hold("cublaslt", lt_workspace_bytes())

    def clear(self) -> None:
        """Give all of them back; the next product takes them again (`torch._C._cuda_clearCublasWorkspaces`)."""
        for entry in self._entries.values():
            self._memory.release(entry)
        self._entries.clear()

    def _hold(self, library: str, nbytes: int) -> None:
        key = (library, threading.get_ident(), self._memory.stream)
        if key not in self._entries:
            self._entries[key] = self._memory.take(nbytes, "workspaces")
            if not self._keeps:
                self.clear()
