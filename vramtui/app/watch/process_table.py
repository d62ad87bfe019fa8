"""The process table: who holds memory now, and what nobody accounts for."""

from collections.abc import Sequence

from textual.message import Message
from textual.strip import Strip

from vramtui.app.messages import RowChosen, SortChosen
from vramtui.app.state.process_filter import doubt
from vramtui.app.state.sorted_rows import FROM_THE_SMALLEST
from vramtui.app.state.view import ProcessRow, SortColumn, View
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Column
from vramtui.app.ui.cursor_list import CursorRows, moving_keys
from vramtui.app.ui.lines import wrap
from vramtui.app.ui.list_frame import ListFrame, SortHeading
from vramtui.app.watch.process_columns import columns_for, look_alike, row_strip
from vramtui.core.base.text import printable


class Heading(SortHeading[View, SortColumn]):
    """The columns of the process table."""

    def columns(self, width: int) -> tuple[Column[SortColumn], ...]:
        """Those of the rows below."""
        return columns_for(width, width)

    def sorting(self, view: View) -> tuple[SortColumn, bool]:
        """Numbers begin with the largest."""
        return view.sort, (view.sort not in FROM_THE_SMALLEST) != view.reverse

    def choice(self, column: SortColumn) -> Message:
        """Sort by it."""
        return SortChosen(column)


class Rows(CursorRows[View, ProcessRow]):
    """The rows. The cursor is the chosen row; moving it by hand makes the order stay."""

    BINDINGS = moving_keys("table")

    def rows_of(self, view: View) -> Sequence[ProcessRow]:
        """Filtered and in order."""
        return view.rows

    def cursor_of(self, view: View) -> int:
        """Where the chosen one stands."""
        return view.chosen_at

    def line_of(self, row: ProcessRow, palette: Palette, width: int, cursor: str | None) -> Strip:
        """One process, or bytes without one."""
        return row_strip(columns_for(self.breadth, width), row, palette, width, cursor)

    def alike(self, one: ProcessRow, other: ProcessRow) -> bool:
        """Whether nothing that is shown of them differs."""
        return look_alike(one, other)

    def sentences(self, view: View, width: int) -> Sequence[str]:
        """Why there are no rows."""
        return wrap(_empty(view), width)

    def choice(self, row: ProcessRow) -> Message:
        """Look at this one."""
        return RowChosen(row.id)

    def by_hand(self, view: View) -> bool:
        """Once a row is chosen, rows keep their order."""
        return view.held

    def _cursor_style(self, at: int) -> str | None:
        return (
            "cursor" if at == self._cursor and self.view is not None and self.view.held else super()._cursor_style(at)
        )


def _empty(view: View) -> str:
    if view.sample is None:
        return ""
    if view.filter:
        words = (f"No row matches “{view.filter}”.", doubt(view.filter), "Esc clears the filter.")
        return printable(" ".join(filter(None, words)))
    if not view.sample.gpus:
        return "No GPUs, so no processes."
    return "No process uses a GPU now. Press p to choose a preset and see what a job would need before it starts."


class ProcessTable(ListFrame[View, SortColumn, ProcessRow]):
    """Heading and rows in a frame."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(Heading(), Rows(id="rows"), id=id)

    def titles(self, view: View) -> tuple[str, str]:
        """How many processes; what the filter is, and whether the order is held."""
        count = sum(row.kind == "process" for row in view.rows) if view.filter else view.total
        title = f"Processes · {count} of {view.total}" if view.filter else f"Processes · {view.total}"
        states = []
        if view.filter:
            states.append(f"filter: {view.filter}")
        if view.held:
            states.append("sorting frozen · Esc resumes")
        return title, " · ".join(states)
