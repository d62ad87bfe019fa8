"""The rows of a host, made where somebody looks at them: a host may have many thousands, a screen shows some dozens."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, overload

from vramtui.app.state.row import KIND_ORDER, as_shown, exited_rows, last_answer, process_row, remainders, worth_a_row
from vramtui.app.state.view import HeldTotals, ProcessRow, RowId
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample
from vramtui.core.observation.track import Track
from vramtui.monitor.probes import bare_uuid


class GpuRows(NamedTuple):
    """The rows of one GPU: its processes, then the rest of what holds its memory. `start` is the place of the first."""

    start: int
    gpu: Gpu
    age: float | None
    processes: Sequence[Process]
    tracks: Mapping[int, Track]
    rest: Sequence[ProcessRow]

    @property
    def end(self) -> int:
        """The place after its last row."""
        return self.start + len(self.processes) + len(self.rest)


class FrozenOrder:
    """An order that rows keep, whatever they hold by then."""

    def __init__(self, rows: Sequence[ProcessRow]) -> None:
        # A key's hash is dear, and there may be a place to look up for each of many thousands of rows every second.
        self._processes: dict[str, dict[tuple[int, float | None], int]] = {}
        self._others: dict[RowId, int] = {}
        for at, row in enumerate(rows):
            if isinstance(row.id, ProcessKey):
                self._processes.setdefault(row.id.gpu_uuid, {})[row.id.pid, row.id.started_at] = at
            else:
                self._others[row.id] = at

    def places(self, part: GpuRows) -> Iterator[int | None]:
        """Where each row of a part stands; None for one that was not there."""
        known = self._processes.get(part.gpu.uuid, {})
        for process in part.processes:
            yield known.get((process.pid, process.started_at))
        yield from map(self.place, part.rest)

    def place(self, row: ProcessRow) -> int | None:
        """Where a row stands; None for one that was not there."""
        if not isinstance(row.id, ProcessKey):
            return self._others.get(row.id)
        return self._processes.get(row.id.gpu_uuid, {}).get((row.id.pid, row.id.started_at))


class ProcessRows(Sequence[ProcessRow]):
    """Every row in the order of the sample: GPU by GPU, then the processes that have gone. The `now` of a GPU's rows,
    what is folded into `totals` and its free bytes add up to its total. A GPU that does not answer has the rows of its
    last answer, with their age.

    Args:
        sample: what is shown.
        history: what was seen until then; `settle` has to be called before it takes another sample.
        answered: by uuid, when each GPU answered last and what it said.
        whole: nothing is folded: what drivers keep and small remainders have rows, too.
    """

    def __init__(
        self,
        sample: Sample,
        history: History,
        answered: Mapping[str, tuple[float, Gpu]],
        *,
        whole: bool = False,
    ) -> None:
        self.parts: list[GpuRows] = []
        self._taken_at = sample.taken_at
        self._remainders: list[ProcessRow] = []
        self._made: dict[int, ProcessRow] = {}
        self._by_held: tuple[FrozenOrder, list[int], list[int]] | None = None
        start = 0
        alike = len({gpu.uuid for gpu in sample.gpus}) < len(sample.gpus)  # as a recording may say, or a broken driver
        for told in sample.gpus:
            gpu, age = last_answer(sample, told, answered)
            # The history goes on; what is looked up here, while a View is drawn again or held, stays.
            tracks = dict(history.here(sample.host.name, gpu.uuid))
            processes: Sequence[Process] = gpu.processes
            if alike or len(tracks) != len(processes) or "processes" in gpu.absent:
                processes = [process for process in processes if process.pid in tracks]
            grown = history.grown(sample.host.name, gpu.uuid) if (gpu.unattributed or 0) < 0 else None
            rest = remainders(gpu, age, sample.host, grown)
            if not whole:
                self._remainders += rest
                rest = [row for row in rest if worth_a_row(row)]
            self.parts.append(GpuRows(start, gpu, age, processes, tracks, rest))
            start = self.parts[-1].end
        self.gone = exited_rows(sample, history)
        self.gone_from = start
        self._starts = [part.start for part in self.parts]

    def __len__(self) -> int:
        return self.gone_from + len(self.gone)

    @overload
    def __getitem__(self, at: int) -> ProcessRow: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[ProcessRow]: ...

    def __getitem__(self, at: int | slice) -> ProcessRow | Sequence[ProcessRow]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        row = self._made.get(at)
        if row is None:
            row = self._made[at] = self._make(range(len(self))[at])
        return row

    def _make(self, at: int) -> ProcessRow:
        if at >= self.gone_from:
            return self.gone[at - self.gone_from]
        part = self.parts[bisect_right(self._starts, at) - 1]
        within = at - part.start
        if within >= len(part.processes):
            return part.rest[within - len(part.processes)]
        process = part.processes[within]
        return process_row(part.gpu, process, part.tracks[process.pid], part.age, self._taken_at)

    def totals(self) -> HeldTotals:
        """What stands below the rows."""
        users: dict[str | None, int] = {}
        for part in self.parts:
            if part.processes is part.gpu.processes:
                for user, held in part.gpu.held_by_user.items():
                    users[user] = users.get(user, 0) + held
                continue
            for process in part.processes:
                if process.used_memory:
                    users[process.user] = users.get(process.user, 0) + process.used_memory
        driver = sum(row.gpu.memory.reserved or 0 for row in self._remainders if row.kind == "reserved")
        return HeldTotals(
            held=sum(users.values()),
            users=tuple(sorted(((user or "", held) for user, held in users.items()), key=lambda one: -one[1])),
            driver=driver,
            unattributed=sum(row.now or 0 for row in self._remainders if row.kind != "instances") - driver,
        )

    def held_at(self, at: int) -> int | None:
        """What the row at a place holds, in tenths of a GiB as it is shown; no process's row is made for that."""
        part = self.parts[bisect_right(self._starts, at) - 1] if at < self.gone_from else None
        if part is not None and at - part.start < len(part.processes):
            held = part.processes[at - part.start].used_memory
        else:
            held = self[at].now
        return None if held is None else as_shown(held)

    def weight(self, at: int) -> tuple[int, int]:
        """What the row at a place is sorted by among those of its GPU; no row is made for that."""
        if at < self.gone_from:
            part = self.parts[bisect_right(self._starts, at) - 1]
            within = at - part.start
            if within < len(part.processes):
                return (KIND_ORDER["process"], -as_shown(part.processes[within].used_memory or 0))
        row = self[at]
        return (KIND_ORDER[row.kind], -as_shown(row.now or 0))

    def settle(self) -> None:
        """Make every row now, before the history changes."""
        for at in range(len(self)):
            self[at]

    def find(self, row: RowId) -> int | None:
        """The place of a row; None where there is none like it."""
        if isinstance(row, ProcessKey):
            for part in self.parts:
                if part.gpu.uuid == row.gpu_uuid:
                    for within, process in enumerate(part.processes):
                        if process.pid == row.pid and part.tracks[process.pid].key == row:
                            return part.start + within
            return next((at for at, other in enumerate(self.gone, self.gone_from) if other.id == row), None)
        for part in self.parts:
            for at, other in enumerate(part.rest, part.start + len(part.processes)):
                if other.id == row:
                    return at
        return None

    def places(self, processes: AbstractSet[tuple[int, str]]) -> list[int]:
        """Where processes stand, each given by its pid and its card's bare uuid."""
        uuids = {uuid for _, uuid in processes}
        parts = [part for part in self.parts if bare_uuid(part.gpu.uuid) in uuids]
        return [
            at
            for part in parts
            for at, process in enumerate(part.processes, part.start)
            if (process.pid, bare_uuid(part.gpu.uuid)) in processes
        ]

    def places_by_order(self, order: FrozenOrder) -> tuple[list[int], list[int]]:
        """The places of the rows that were there when the order was taken, in that order, and those of the others."""
        if self._by_held is None or self._by_held[0] is not order:
            places = [at for part in self.parts for at in order.places(part)] + [order.place(row) for row in self.gone]
            known = sorted((place, at) for at, place in enumerate(places) if place is not None)
            self._by_held = (order, [at for _, at in known], [at for at, place in enumerate(places) if place is None])
        return self._by_held[1], self._by_held[2]
