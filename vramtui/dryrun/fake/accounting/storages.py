"""Which storage holds which block of the simulated allocator, from the first sight of a storage to its death."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.dryrun.fake.device.device import SIM


class StorageEntry:
    """One storage, or one piece of memory that an operator takes for itself.

    Attributes:
        nbytes: the size asked for.
        address: what `data_ptr` answers; 0 until it is asked for.
        block: the allocator's block, or None for memory that is not the device's.
        size: the size of that block.
        birth, death: the numbers of the events that made and ended it; death is None while it lives.
        phase: the phase it was born in.
        category: what the bytes are, where that is known; None until then.
        operator: the operator that made it, None where none did; its name is made when it is shown.
        module, line: the module and the user's line that made it.
        mirror: a real CPU storage that holds the same values, for small tensors.
        guessed: whether those follow from data that nobody has.
        holds: of checks of numbers, at all places the same: what they give in a healthy job; None of anything else.
        below: of integers, the number below which all of them are, none of them negative; None where none is known.
        places: of a mask that nobody knows, how many places a write through it had values for; None where none was.
    """

    __slots__ = (
        "address",
        "below",
        "birth",
        "block",
        "category",
        "death",
        "guessed",
        "holds",
        "line",
        "mirror",
        "module",
        "nbytes",
        "operator",
        "phase",
        "places",
        "ref",
        "size",
    )

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.address = 0
        self.block: int | None = None
        self.size = 0
        self.birth = 0
        self.death: int | None = None
        self.phase = ""
        self.category: str | None = None
        self.operator: Any = None
        self.module = ""
        self.line = ""
        self.guessed = False
        self.holds: bool | None = None
        self.below: int | None = None
        self.places: int | None = None
        self.mirror: torch.UntypedStorage | None = None
        self.ref: Any = None


class StorageBook:
    """Follows every storage.

    Args:
        born: called with the entry when a storage of the device is first seen.
        died: called with the entry when that storage has died.
    """

    def __init__(self, born: Callable[[StorageEntry], None], died: Callable[[StorageEntry], None]) -> None:
        self.entries: dict[int, StorageEntry] = {}
        self._next_address = 0x7F00_0000_0000
        self._born = born
        self._died = died

    def find(self, tensor: torch.Tensor) -> StorageEntry | None:
        """The entry of `tensor`'s storage, if it has been seen; None of a sparse one, which has several."""
        try:
            return self.entries.get(tensor.untyped_storage()._cdata)
        except NotImplementedError:
            return None

    def see(self, tensor: torch.Tensor) -> StorageEntry | None:
        """The entry for a storage that is new, or that was made elsewhere and is on the card now; None for any other."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        entry = self.entries.get(key)
        is_on_card = isinstance(tensor, FakeTensor) and tensor._fake_device.type == SIM
        if entry is None:
            entry = self.entries[key] = StorageEntry(storage.nbytes())
            entry.ref = weakref.ref(storage, lambda _ref: self._gone(key))
        elif entry.birth or not is_on_card or not entry.nbytes:
            return None
        if entry.nbytes and is_on_card:
            self._born(entry)
        return entry

    def address(self, storage: torch.UntypedStorage) -> int:
        """The address of a fake storage: no other has it, and it stays the same as long as the memory does."""
        entry = self.entries.get(storage._cdata)
        if entry is None or not entry.nbytes:
            return storage._cdata if storage.nbytes() else 0
        if not entry.address:
            entry.address, self._next_address = self._next_address, self._next_address + -(-entry.nbytes // 512) * 512
        return entry.address

    def _gone(self, key: int) -> None:
        entry = self.entries.pop(key, None)
        if entry is not None and entry.block is not None:
            self._died(entry)
