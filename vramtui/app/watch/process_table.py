"""The process table: who holds memory now, and what nobody accounts for."""

from collections.abc import Sequence

from rich.cells import cell_len
from textual.strip import Strip

from vramtui.app.state.rows import FROM_THE_SMALLEST, RowGroups, doubt
from vramtui.app.state.view import HeldTotals, ProcessRow, SortColumn, View
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Column
from vramtui.app.ui.cursor_list import CursorRows, moving_keys
from vramtui.app.ui.lines import Lines, Piece, between, fit, wrap
from vramtui.app.ui.list_frame import ListFrame, SortHeading
from vramtui.app.watch.process_columns import columns_for, look_alike, row_strip
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_gib

NAME_MOST = 10
SORTED_BY: dict[SortColumn, str] = {
    "pid": "pid",
    "gpu": "GPU",
    "user": "user",
    "type": "type",
    "now": "memory",
    "peak": "peak",
    "predicted": "prediction",
    "delta": "difference",
    "sm": "SM %",
    "cpu": "CPU %",
    "host": "host memory",
    "time": "time",
    "job": "job",
    "command": "command",
}
GROUP_TITLES = {"job": "job", "user": "user", "gpu": "GPU", "tree": "process tree"}


class Rows(CursorRows[View, ProcessRow]):
    """The rows. The cursor is the chosen row; moving it by hand makes the order stay."""

    BINDINGS = moving_keys("table")

    def rows_of(self, view: View) -> Sequence[ProcessRow]:
        return view.rows

    def cursor_of(self, view: View) -> int:
        return view.chosen_at

    def line_of(self, row: ProcessRow, palette: Palette, width: int, cursor: str | None) -> Strip:
        """One process, or bytes without one."""
        return row_strip(_columns(self.view, self.breadth, width), row, palette, width, cursor)

    def alike(self, one: ProcessRow, other: ProcessRow) -> bool:
        """Whether nothing that is shown of them differs."""
        return look_alike(one, other)

    def layout_of(self, view: View) -> object:
        """The columns: those of predictions come with the first one."""
        return view.columns, view.predicts, view.rare, _longest_user(view)

    def sentences(self, view: View, width: int) -> Sequence[str]:
        return wrap(_empty(view), width)

    def by_hand(self, view: View) -> bool:
        """Once a person chose a row it stays in sight, also where another order or filter moves it."""
        return view.by_hand

    def _cursor_style(self, at: int) -> str | None:
        return (
            "cursor"
            if at == self._cursor and self.view is not None and self.view.is_frozen
            else super()._cursor_style(at)
        )


def _empty(view: View) -> str:
    if view.sample is None:
        return ""
    if view.filter:
        words = (f"No row matches “{view.filter}”.", doubt(view.filter), "Esc clears the filter.")
        return printable(" ".join(filter(None, words)))
    if not view.sample.gpus:
        return "No GPUs, so no processes. Press p to choose a preset: Plan (2) says which card it needs."
    return "No process uses a GPU now. Press p to choose a preset and see what a job would need before it starts."


def _columns(view: View | None, breadth: int, width: int) -> tuple[Column[SortColumn], ...]:
    if view is None:
        return columns_for(breadth, width, predicts=False)
    return columns_for(breadth, width, view.columns, predicts=view.predicts, rare=view.rare, user=_longest_user(view))


def _longest_user(view: View) -> int:
    """Columns of the longest user's name; 0 where all processes are of one."""
    users = view.totals.users
    return max(cell_len(fit_name(user)) for user, _ in users) if len(users) > 1 else 0


class Foot(Lines[View]):
    """Below the rows: what all processes hold, what each user's do, and what has no row of its own."""

    DEFAULT_CSS = "Foot { height: 1; }"

    def part(self, view: View) -> object:
        """The totals, which the foot line shows."""
        return view.totals

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """One line: users as they fit, then the rest."""
        del height
        if view.sample is None:
            return []
        rest = _without_rows(view.totals)
        end: list[Piece] = [(rest + " ", palette.dim)] if rest else []
        start: list[Piece] = [(" all ", palette.dim), (f"{format_gib(view.totals.of_processes)} GiB", palette.strong)]
        room = width - sum(cell_len(text) for text, _ in [*start, *end]) - 1
        for user, of_user in view.totals.users if len(view.totals.users) > 1 else ():
            name, size = f"  {fit_name(user)} ", format_gib(of_user)
            room -= cell_len(name) + len(size)
            if room < 0:
                break
            start += [(name, palette.dim), (size, palette.text)]
        return [between(start, end, width, palette.text)]


def fit_name(user: str) -> str:
    """A user's name in at most ten columns."""
    name = printable(user or UNKNOWN)
    return name if cell_len(name) <= NAME_MOST else fit(name, NAME_MOST)


def _without_rows(totals: HeldTotals) -> str:
    """What drivers keep, and what nobody accounts for."""
    driver = f"driver {format_bytes(totals.driver)}" if totals.driver else ""
    rest = f"unattributed {format_bytes(totals.unattributed)}" if totals.unattributed else ""
    return " · ".join(filter(None, (driver, rest)))


class ProcessTable(ListFrame[View, SortColumn, ProcessRow]):
    """Heading and rows in a frame."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        self._heading = SortHeading[View, SortColumn](
            lambda view, width: _columns(view, width, width),
            lambda view: (view.sort, (view.sort not in FROM_THE_SMALLEST) != view.reverse),
        )
        super().__init__(self._heading, Rows(id="rows"), Foot(), id=id)

    def column_names(self) -> list[SortColumn]:
        """Those that are shown, from left to right."""
        return [column.name for column in self._heading.columns(self._heading.size.width)]

    def titles(self, view: View) -> tuple[str, str]:
        """How many processes; what the filter is, and whether the order is held."""
        rows = view.rows.rows if isinstance(view.rows, RowGroups) else view.rows
        count = sum(row.kind == "process" for row in rows) if view.filter else view.total
        title = f"Processes · {count} of {view.total}" if view.filter else f"Processes · {view.total}"
        states = [] if view.group == "none" else [f"by {GROUP_TITLES[view.group]} · b changes · Enter opens"]
        if view.filter:
            states.append(f"filter: {view.filter}")
        if view.is_monitor and view.group == "none":
            states.append(f"by {SORTED_BY[view.sort]}")
        if view.is_frozen:
            states.append("sorting frozen · Esc resumes")
        return title, " · ".join(states)
