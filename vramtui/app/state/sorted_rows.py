"""The rows that are asked for, in the order that is asked for, with their predictions."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, overload

import msgspec

from vramtui.app.state.process_filter import conditions, pick_rows
from vramtui.app.state.process_rows import FrozenOrder, ProcessRows
from vramtui.app.state.row import SORT_KEYS
from vramtui.app.state.view import ProcessRow, RowId, SortColumn
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.readings import Gpu, ProcessKey
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.probes import Jobs, no_jobs, reporting

Estimates = Callable[[PresetFile, Device], Estimate | None]
FROM_THE_SMALLEST = ("pid", "gpu", "user", "type", "command")


class RowPredictions:
    """The rows of a listing, by their places there, with the predictions of those whose process runs a preset.

    Each preset is asked for once a GPU.

    Args:
        listing: the rows.
        matched: the presets that their processes run.
        estimates: the estimate of a preset on a card.
        is_quick: whether a nearer estimate of it will replace that one.
    """

    def __init__(
        self,
        listing: ProcessRows,
        matched: Mapping[ProcessKey, PresetFile],
        estimates: Estimates,
        is_quick: Callable[[PresetFile, Device], bool] = lambda _, __: False,
    ) -> None:
        self.listing = listing
        self._matched = matched
        self._estimates = estimates
        self._is_quick = is_quick
        self._asked: dict[tuple[int, str], tuple[int | None, bool]] = {}
        self._rows: dict[int, ProcessRow] = {}

    def row(self, at: int) -> ProcessRow:
        """The row at place `at` of the listing."""
        found = self._rows.get(at)
        if found is None:
            found = self._rows[at] = self._predicted(self.listing[at])
        return found

    def places(self) -> list[int]:
        """Where the rows stand whose process runs a preset."""
        found = (self.listing.find(key) for key in self._matched)
        return sorted(at for at in found if at is not None)

    def rows(self) -> list[ProcessRow]:
        """The rows whose process runs a preset, in the order of the listing."""
        return [self.row(at) for at in self.places()]

    def _predicted(self, row: ProcessRow) -> ProcessRow:
        found = self._matched.get(row.id) if self._matched and isinstance(row.id, ProcessKey) else None
        if found is None:
            return row
        predicted, is_quick = self._process(found, row.gpu)
        fraction = row.peak / predicted - 1 if predicted and row.peak is not None else None
        return msgspec.structs.replace(
            row,
            predicted=predicted,
            fraction=fraction,
            preset=found.key,
            is_assumed=found.is_assumed,
            is_quick=is_quick,
        )

    def _process(self, found: PresetFile, gpu: Gpu) -> tuple[int | None, bool]:
        at = (id(found), gpu.uuid)  # not its key: two jobs of one preset may have values of their own
        if at not in self._asked:
            device = device_of(gpu)
            estimate = self._estimates(found, device)
            self._asked[at] = (None, False) if estimate is None else (estimate.process, self._is_quick(found, device))
        return self._asked[at]


class _Run:
    """Some places of a listing that stand together; put in order when one of them is looked at."""

    def __init__(self, members: Sequence[Sequence[int]], sort: Callable[[Iterable[int]], list[int]]) -> None:
        self._members = members
        self._sort = sort
        self._order: list[int] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._members))

    def __contains__(self, at: int) -> bool:
        return any(at in member for member in self._members)

    @property
    def order(self) -> list[int]:
        """The places, in order."""
        if self._order is None:
            self._order = self._sort(at for member in self._members for at in member)
        return self._order


class SortedRows(Sequence[ProcessRow]):
    """Some of a listing's rows, in an order of their own."""

    def __init__(self, predicted: RowPredictions, runs: Sequence[_Run]) -> None:
        self.predicted = predicted
        self._runs = runs
        self._starts = list(accumulate(map(len, runs), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> ProcessRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ProcessRow]: ...

    def __getitem__(self, index: int | slice) -> ProcessRow | Sequence[ProcessRow]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        run = bisect_right(self._starts, index) - 1
        return self.predicted.row(self._runs[run].order[index - self._starts[run]])

    def __iter__(self) -> Iterator[ProcessRow]:
        return (self.predicted.row(at) for run in self._runs for at in run.order)

    def selected_index(self, row: RowId | None, jobs: Jobs = no_jobs) -> int:
        """Where the row stands that was chosen by hand; else the first with a preset, else the first whose job reports
        figures of itself, else the first process, else the first.
        """
        listing = self.predicted.listing
        at = listing.find(row) if row is not None else None
        index = self._index(at) if at is not None else None
        if index is not None:
            return index
        matched = [index for index in map(self._index, self.predicted.places()) if index is not None]
        if matched:
            return min(matched)
        # In the listing's order, which sizes do not change: two such jobs would take turns.
        reports = [index for index in map(self._index, listing.places(reporting(jobs))) if index is not None]
        if reports:
            return reports[0]
        return next((index for index, row in enumerate(self) if row.kind == "process"), 0)

    def _index(self, at: int) -> int | None:
        """Where the row at place `at` of the listing stands; None where it is not asked for."""
        for start, run in zip(self._starts, self._runs, strict=False):
            if at in run:
                return start + run.order.index(at)
        return None


def arranged(
    predicted: RowPredictions, wanted: str, column: SortColumn, held: FrozenOrder | None, *, reverse: bool
) -> SortedRows:
    """The rows that fulfil every word of `wanted`, sorted by `column`.

    Numbers begin with the largest and text with the first of the alphabet, unless `reverse`. What is not known
    comes last in both directions. Rows that are `held` keep that order, and others follow them.

    Args:
        predicted: all rows.
        wanted: words; every row where there are none.
        column: what is sorted by.
        held: an order that rows keep.
        reverse: the other way round.
    """
    words = conditions(wanted)
    if not words and held is None and column == "gpu":
        return SortedRows(predicted, _by_gpu(predicted.listing, reverse=reverse))
    places: Iterable[int] = range(len(predicted.listing))
    if words:
        places = pick_rows(places, predicted.row, words)
    if held is None:
        return _ready(predicted, _sorted(predicted, places, column, reverse=reverse))
    known, others = predicted.listing.places_by_order(held)
    if words:
        kept = set(places)
        known, others = [at for at in known if at in kept], [at for at in others if at in kept]
    return _ready(predicted, known + _sorted(predicted, others, column, reverse=reverse))


def _ready(predicted: RowPredictions, places: list[int]) -> SortedRows:
    return SortedRows(predicted, [_Run([places], list)])


def _sorted(predicted: RowPredictions, places: Iterable[int], column: SortColumn, *, reverse: bool) -> list[int]:
    key = SORT_KEYS[column]
    values: dict[int, Any]
    if column == "now":  # of many thousands of rows a screen shows some dozens: the others are not made for their order
        values = {at: predicted.listing.held_at(at) for at in places}
    else:
        values = {at: key(predicted.row(at)) for at in places}
    known = [at for at, value in values.items() if value is not None]
    known.sort(key=values.__getitem__, reverse=(column not in FROM_THE_SMALLEST) != reverse)
    return known + [at for at, value in values.items() if value is None]


def _by_gpu(listing: ProcessRows, *, reverse: bool) -> list[_Run]:
    """A run for each GPU, so that only those are put in order that are on the screen."""

    def place(gpu: Gpu) -> tuple[int, str]:
        return gpu.index, gpu.mig_parent or ""

    def in_order(places: Iterable[int]) -> list[int]:
        return sorted(places, key=listing.weight, reverse=reverse)

    members = [(place(part.gpu), range(part.start, part.end)) for part in listing.parts]
    members += [(place(row.gpu), range(at, at + 1)) for at, row in enumerate(listing.gone, listing.gone_from)]
    members.sort(key=lambda member: member[0], reverse=reverse)
    return [_Run([places for _, places in run], in_order) for _, run in groupby(members, lambda member: member[0])]
