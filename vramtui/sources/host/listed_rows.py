"""A device's process list as rows: with thousands of processes only what has changed of them is made anew."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.observation.readings import Absence, Process, ProcessType, Roster, facts_of

if TYPE_CHECKING:
    from vramtui.sources.nvml.processes import ProcessUse

MakeRow = Callable[[int, ProcessType, int | None, Absence | None], Process]


class ListedRows:
    """The rows of one device's list, each the very same one while nothing of it changes.

    Args:
        make: the row of a pid that stands in this list or lists and holds so many bytes; why they are unknown.

    Attributes:
        roster: who is in the list that was taken last: the very same value until somebody comes, goes or changes.
    """

    def __init__(self, make: MakeRow) -> None:
        self.roster = Roster(())
        self._make = make
        self._places: dict[int, int] = {}
        self._pids: list[int] = []
        self._rows: list[Process] = []
        self._stale: set[int] = set()

    def forget(self, pid: int) -> None:
        """Something else than its memory is known anew of a process."""
        self._stale.add(pid)

    def take(self, held: "Mapping[int, ProcessUse]", busy: Mapping[int, int] | None) -> list[Process]:
        """The rows of the list as it is now.

        Args:
            held: what each process holds.
            busy: how busy each keeps the device, in percent; None where that is not known.
        """
        pids = list(held)
        if pids == self._pids:
            self._rows = [_with_memory(row, use) for row, use in zip(self._rows, held.values(), strict=True)]
            same = self._renew(held)
        else:
            self._rows, same = self._rows_anew(held), False
            self._pids, self._places = pids, {pid: place for place, pid in enumerate(pids)}
        self._stale.clear()
        tells_sm = busy is not None and bool(pids)
        if tells_sm or self.roster.tells_sm:
            shares = [None] * len(pids) if busy is None else [busy.get(pid, 0) for pid in pids]
            self._rows = [
                row if row.sm_percent == share else msgspec.structs.replace(row, sm_percent=share)
                for row, share in zip(self._rows, shares, strict=True)
            ]
        if not same or tells_sm != self.roster.tells_sm:
            roster = Roster(self._rows)
            self.roster = self.roster if roster == self.roster else roster
        return self._rows

    def _rows_anew(self, held: "Mapping[int, ProcessUse]") -> list[Process]:
        """The rows of a list in which somebody came or went."""
        known = {pid: row for pid, row in zip(self._pids, self._rows, strict=True) if pid not in self._stale}
        return [_with_memory(known[pid], use) if pid in known else self._row(pid, use) for pid, use in held.items()]

    def _renew(self, held: "Mapping[int, ProcessUse]") -> bool:
        """Make anew the rows of which something else than their memory has changed; False where it tells who it is."""
        same = True
        for pid in self._stale & self._places.keys():
            place = self._places[pid]
            row = self._rows[place] = self._row(pid, held[pid])
            same = same and facts_of(row) == self.roster.facts[place]
        return same

    def _row(self, pid: int, use: "ProcessUse") -> Process:
        return self._make(pid, use.type, use.used, Absence.NOT_SUPPORTED if use.used is None else None)


def _with_memory(row: Process, use: "ProcessUse") -> Process:
    """The row with what the process holds now."""
    used = use.used
    if row.type == use.type:
        if row.used_memory == used:
            return row
        if used is not None and row.used_memory is not None:  # of thousands a second nearly all
            return msgspec.structs.replace(row, used_memory=used)
    absent = {name: why for name, why in row.absent.items() if name != "used_memory"}
    if used is None:
        absent["used_memory"] = Absence.NOT_SUPPORTED
    return msgspec.structs.replace(row, type=use.type, used_memory=used, absent=absent)
