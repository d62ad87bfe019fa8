"""Past runs as the History screen needs them: filtered, sorted, and one of them selected."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from vramtui.app.ui.lists import ColumnSort
from vramtui.core.runs.run import Spread, StoredRun, spreads
from vramtui.core.runs.run_list import (
    FROM_THE_LARGEST,
    RUN_COLUMNS,
    RunColumn,
    RunFilter,
    errors_of,
    filtered,
    histogram,
    in_order,
)


class RunStore(Protocol):
    """The past runs. Everything but `note` may take time or raise UserError, and is called on threads."""

    @property
    def note(self) -> str:
        """A note on all runs; empty for real ones."""
        ...

    def stamp(self) -> object:
        """A value that changes whenever a run is added, changed or deleted."""
        ...

    def runs(self) -> tuple[StoredRun, ...]:
        """All runs, the latest first."""
        ...

    def forget(self, number: int) -> None: ...

    def report(self, stored: StoredRun) -> list[str]:
        """Write a run to files and return their paths."""
        ...


class Errors(msgspec.Struct, frozen=True):
    """The errors of one kind of predictions, and the number of runs in each bar of a histogram."""

    spread: Spread
    counts: tuple[int, ...]


class HistoryView(msgspec.Struct, frozen=True, eq=False):
    """Everything on the History screen. `runs` are filtered and in order; `total` counts all.

    `is_read` is False until the history was read for the first time; `problem` says why it could not be read. `now` is
    in seconds since the epoch.
    """

    runs: tuple[StoredRun, ...] = ()
    total: int = 0
    is_read: bool = False
    problem: str = ""
    note: str = ""
    chosen: StoredRun | None = None
    sort: RunColumn = "when"
    falls: bool = True
    filter: str = ""
    errors: tuple[Errors, ...] = ()
    now: float = 0.0


class HistoryModel(ColumnSort[RunColumn]):
    """Takes past runs and the user's choices, and makes the view of them. It uses no widget, no clock and no file."""

    __slots__ = ("_chosen", "_errors", "_every", "_last_at", "_problem", "_shown", "filter", "is_read")

    COLUMNS = RUN_COLUMNS
    FROM_THE_LARGEST = FROM_THE_LARGEST

    def __init__(self) -> None:
        super().__init__("when")
        self.filter, self._problem = "", ""
        self.is_read = False
        self._every: tuple[StoredRun, ...] = ()
        self._errors: tuple[Errors, ...] = ()
        self._shown: tuple[StoredRun, ...] = ()
        self._chosen: int | None = None
        self._last_at = 0

    def take(self, runs: Sequence[StoredRun]) -> None:
        """Show these runs from now on."""
        self._every, self.is_read, self._problem = tuple(runs), True, ""
        self._arrange()

    def fail(self, problem: str) -> None:
        """Show why they cannot be read; the known ones stay."""
        self.is_read, self._problem = True, problem

    def choose(self, number: int) -> None:
        self._chosen = number

    def sort_by(self, column: RunColumn) -> None:
        super().sort_by(column)
        self._arrange()

    def set_filter(self, text: str) -> None:
        """Show only runs that contain every word of `text`."""
        self.filter = text
        self._arrange()

    @property
    def selected(self) -> StoredRun | None:
        """The chosen run; if it is gone, the one in its place."""
        for at, stored in enumerate(self._shown):
            if stored.id == self._chosen:
                self._last_at = at
                return stored
        return self._shown[min(self._last_at, len(self._shown) - 1)] if self._shown else None

    def view(self, now: float) -> HistoryView:
        return HistoryView(
            runs=self._shown,
            total=len(self._every),
            is_read=self.is_read,
            problem=self._problem,
            chosen=self.selected,
            sort=self.sort,
            falls=self.falls,
            filter=self.filter,
            errors=self._errors,
            now=now,
        )

    def _arrange(self) -> None:
        """Make the list and the errors of its runs, once per change."""
        some = filtered(self._every, RunFilter(words=self.filter))
        self._shown = tuple(in_order(some, self.sort, reverse=self.reverse))
        runs = tuple(stored.run for stored in some)
        self._errors = tuple(
            Errors(spread, histogram(errors_of(runs, spread.method, spread.model_kind))) for spread in spreads(runs)
        )
