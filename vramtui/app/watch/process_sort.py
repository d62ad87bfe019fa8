"""In which order rows stand, and which of them: what a person chooses of a list."""

from vramtui.app.state import SORT_COLUMNS, SortColumn
from vramtui.app.watch.process_rows import FrozenOrder


class Ordering:
    """Column, direction and filter; `_held` is the order that rows keep while somebody looks at one of them."""

    def __init__(self) -> None:
        self.sort: SortColumn = "gpu"
        self.reverse = False
        self.filter = ""
        self._held: FrozenOrder | None = None

    def sort_by(self, column: SortColumn) -> None:
        """Sort by `column`; by the same one again: the other way round."""
        self.reverse = not self.reverse if column == self.sort else False
        self.sort = column
        self._held = None

    def sort_next(self, direction: int) -> None:
        """Sort by the column to the right (1) or left (-1) of the present one."""
        at = SORT_COLUMNS.index(self.sort)
        self.sort_by(SORT_COLUMNS[(at + direction) % len(SORT_COLUMNS)])

    def set_filter(self, text: str) -> None:
        """Show only rows that hold every word of `text`."""
        self.filter = text
        self._held = None
