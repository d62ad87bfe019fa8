"""Past runs as the History screen needs them: read on a thread, filtered, sorted, and one of them chosen."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from vramtui.app.ui.columns import ColumnSort
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
    """Where past runs are. All of it but `note` may take its time: it is called on threads of its own."""

    @property
    def note(self) -> str:
        """What is to be said of all of them; empty for real ones."""
        ...

    def stamp(self) -> object:
        """Something that is another one whenever a run was added, changed or removed."""
        ...

    def runs(self) -> tuple[StoredRun, ...]:
        """All that are kept, the latest first.

        Raises:
            UserError: they cannot be read.
        """
        ...

    def forget(self, number: int) -> None:
        """Remove one for good.

        Raises:
            UserError: it cannot be removed.
        """
        ...

    def report(self, stored: StoredRun) -> list[str]:
        """Write one to files and return their paths.

        Raises:
            UserError: they cannot be written.
        """
        ...


class Errors(msgspec.Struct, frozen=True):
    """How far predictions of one kind were off, and how many fall into each bar of a histogram."""

    spread: Spread
    counts: tuple[int, ...]


class HistoryView(msgspec.Struct, frozen=True, eq=False):
    """What the History screen shows. `runs` are filtered and in order, of `total` that are kept.

    `is_read` is False until the history was read for the first time; `problem` says why it could not be. `now` is when
    the screen is drawn, in seconds since the epoch.
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
    """Takes past runs and choices, and answers with the view of them. Knows no widget, no clock and no file."""

    __slots__ = ("_chosen", "_errors", "_every", "_last_at", "_shown", "filter", "is_read", "problem")

    COLUMNS = RUN_COLUMNS
    FROM_THE_LARGEST = FROM_THE_LARGEST

    def __init__(self) -> None:
        super().__init__("when")
        self.filter = ""
        self.problem = ""
        self.is_read = False
        self._every: tuple[StoredRun, ...] = ()
        self._errors: tuple[Errors, ...] = ()
        self._shown: tuple[StoredRun, ...] = ()
        self._chosen: int | None = None
        self._last_at = 0

    def take(self, runs: Sequence[StoredRun]) -> None:
        """Know these runs from now on, and no others."""
        self._every, self.is_read, self.problem = tuple(runs), True, ""
        self._arrange()

    def fail(self, problem: str) -> None:
        """Say why they cannot be read; those that are known stay."""
        self.is_read, self.problem = True, problem

    def choose(self, number: int) -> None:
        """Put the cursor on a run."""
        self._chosen = number

    def sort_by(self, column: RunColumn) -> None:
        """Sort by `column`; by the same one again: the other way round."""
        super().sort_by(column)
        self._arrange()

    def set_filter(self, text: str) -> None:
        """Show only runs that hold every word of `text`."""
        self.filter = text
        self._arrange()

    @property
    def selected(self) -> StoredRun | None:
        """The run under the cursor: the chosen one; where that has gone, the one that stands in its place."""
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
            problem=self.problem,
            chosen=self.selected,
            sort=self.sort,
            falls=self.falls,
            filter=self.filter,
            errors=self._errors,
            now=now,
        )

    def _arrange(self) -> None:
        """The list and the errors of the runs in it, made once for each change."""
        some = filtered(self._every, RunFilter(words=self.filter))
        self._shown = tuple(in_order(some, self.sort, reverse=self.reverse))
        runs = tuple(stored.run for stored in some)
        self._errors = tuple(
            Errors(spread, histogram(errors_of(runs, spread.method, spread.model_kind))) for spread in spreads(runs)
        )
