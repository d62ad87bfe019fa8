"""What a call allocates and gives back, in order, and the tensors that it returns."""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.estimators.traced.accounting.storages import KnownValues, StorageEntry
from vramtui.estimators.traced.dispatch.known_results import fake_of
from vramtui.estimators.traced.repeats.structure import ModuleStructure, UnrecognisableError

_PLAIN = (int, float, bool, str, type(None))
_NOT_DESCRIBED = "a result that has no description"


class Birth:
    """One allocation of a record.

    Attributes:
        nbytes, category, operator: as its entry has them.
        place: the module that made it, as its place in the structure.
        line: the user's line within the call; None where that is outside, and another's at each call.
    """

    __slots__ = ("category", "line", "nbytes", "operator", "place")

    def __init__(self, entry: StorageEntry, place: int, line: str | None) -> None:
        self.nbytes, self.category, self.operator = entry.nbytes, entry.category, entry.operator
        self.place, self.line = place, line


class CallRecorder:
    """Takes down the events of one call, while it runs.

    Args:
        structure: of the module that is called.
        running: tells the id of the innermost module that this thread is inside; None where it is inside none.
        outside: the user's line that the call was reached from.

    Attributes:
        events, entries: what was taken and given back.
        valid: a record may stand for the call.
        follows: values that the call has not made itself were read since the last operator.
    """

    def __init__(self, structure: ModuleStructure, running: Callable[[], int | None], outside: str) -> None:
        self.events: list[Birth | int] = []  # an allocation, or which one is given back
        self.entries: list[StorageEntry] = []
        self.valid, self.follows = True, False
        self._apart: set[int] = set()  # births of what knows values that follow from others' values
        self._structure, self._running, self._outside = structure, running, outside
        self._places: dict[int, int] = {}  # by the number of the event that made it

    def born(self, entry: StorageEntry) -> None:
        """Note an allocation. One of another thread, as autograd's are, or of a module from elsewhere leaves the call
        without a record.
        """
        module = self._running()
        place = -1 if module is None else self._structure.place(module)
        if place < 0:
            self.valid = False
            return
        self._places[entry.birth] = len(self.entries)
        self.entries.append(entry)
        line = None if entry.line == self._outside else entry.line
        self.events.append(Birth(entry, place, line))

    def died(self, entry: StorageEntry) -> None:
        """Memory is given back; what the call has not taken itself makes the record useless."""
        place = self._places.get(entry.birth)
        if place is None:
            self.valid = False
        else:
            self.events.append(~place)

    def own(self, entry: StorageEntry | None) -> bool:
        """Whether the call itself has made the storage."""
        return entry is not None and entry.birth in self._places

    def reads(self, entry: StorageEntry | None) -> None:
        """Values are read: of an entry, or of what has none."""
        if entry is None or entry.birth not in self._places or entry.birth in self._apart:
            self.follows = True

    def set_apart(self, entries: list[StorageEntry | None]) -> None:
        """What these know hangs on values that the call was given."""
        self._apart.update(entry.birth for entry in entries if entry is not None)
        self.follows = False

    def finished(self, out: Any, given: list[Any], find: Any) -> "Record | None":
        """The record, or None where it cannot stand for the call.

        Args:
            out: what the call returned.
            given: the tensors that it was called with.
            find: gives a tensor's entry.
        """
        if not self.valid:
            return None
        returned: set[int] = set()
        try:
            result = self._describe(out, given, find, returned)
        except UnrecognisableError:
            return None
        if returned != {place for place, entry in enumerate(self.entries) if entry.block is not None}:
            return None
        known = {place: KnownValues(self.entries[place]) for place in returned}
        return Record(tuple(self.events), known, result)

    def _describe(self, out: Any, given: list[Any], find: Any, returned: set[int]) -> Any:
        if type(out) in _PLAIN:
            return "value", out
        if type(out) in {tuple, list}:
            return type(out), [self._describe(part, given, find, returned) for part in out]
        if isinstance(out, torch.Tensor):
            for place, tensor in enumerate(given):
                if out is tensor:
                    return "given", place
        entry = find(out) if type(out) is FakeTensor else None
        if entry is None or not self.own(entry) or entry.birth in self._apart or entry.ruled_out is not None:
            raise UnrecognisableError(_NOT_DESCRIBED)
        if (
            out.constant is not None
            or out.requires_grad
            or out.is_conj()
            or out.is_neg()
            or entry.nbytes % out.itemsize
        ):
            raise UnrecognisableError(_NOT_DESCRIBED)
        place = self._places[entry.birth]
        returned.add(place)
        return "tensor", place, tuple(out.shape), out.stride(), out.storage_offset(), out.dtype, out._fake_device


class Record:
    """The events of a call and its result, to be run again.

    Attributes:
        events: allocations, and for each piece of memory given back the complement of which allocation it was.
        known: of the allocations that the result keeps what is known of their values.
        result: how to make it.
    """

    __slots__ = ("events", "known", "result")

    def __init__(self, events: tuple[Any, ...], known: dict[int, KnownValues], result: Any) -> None:
        self.events, self.known, self.result = events, known, result

    def give(self, entries: list[StorageEntry], given: list[Any], mode: Any, book: Any) -> Any:
        """The result, whose memory is in `entries`; only without dispatch."""
        bases: dict[int, torch.Tensor] = {}
        out = self._make_result(self.result, given, (entries, bases, mode))
        for place, base in bases.items():
            book.follow(base.untyped_storage(), entries[place])
            self.known[place].put(entries[place])
        return out

    def _make_result(
        self, result: Any, given: list[Any], where: tuple[list[StorageEntry], dict[int, torch.Tensor], Any]
    ) -> Any:
        kind = result[0]
        if kind == "value":
            return result[1]
        if kind == "given":
            return given[result[1]]
        if kind != "tensor":
            return kind(self._make_result(part, given, where) for part in result[1])
        _kind, place, shape, stride, offset, dtype, device = result
        entries, bases, mode = where
        base = bases.get(place)
        if base is None:
            nbytes = entries[place].nbytes
            base = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            if offset or base.untyped_storage().nbytes() != nbytes:
                base = torch.empty(nbytes, dtype=torch.uint8, device="meta")
            bases[place] = base
        plain = base.shape == shape and base.stride() == stride and not offset and base.dtype is dtype
        return fake_of(mode, base if plain else base.view(dtype).as_strided(shape, stride, offset), device)
