"""A list with a heading, in a frame that tells how many there are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from textual import events
from textual.containers import Vertical
from textual.message import Message
from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Columns, column_at, heading
from vramtui.app.ui.cursor_list import CursorRows, Identified
from vramtui.app.ui.lines import Lines, plain

Name = TypeVar("Name", bound=str)
One = TypeVar("One", bound=Identified)
Shown = TypeVar("Shown")


@dataclass
class SortChosen(Message, Generic[Name]):
    """The heading of a column was clicked."""

    column: Name


class SortHeading(Lines[Shown], Generic[Shown, Name]):
    """The names of the columns, the one that sorts marked; a click sorts.

    Args:
        columns: those of a list so wide, for what it shows.
        sorting: the column that sorts, and whether the largest comes first.
    """

    DEFAULT_CSS = "SortHeading { height: 1; }"

    def __init__(
        self, columns: Callable[[Shown | None, int], Columns[Name]], sorting: Callable[[Shown], tuple[Name, bool]]
    ) -> None:
        super().__init__()
        self._columns, self._sorting = columns, sorting

    def columns(self, width: int) -> Columns[Name]:
        """The columns of a list `width` columns wide."""
        return self._columns(self.view, width)

    def build(self, view: Shown, palette: Palette, width: int, height: int) -> list[Strip]:
        """The heading of the columns, with the sort order marked."""
        del height
        sort, falls = self._sorting(view)
        return [heading(self.columns(width), sort, falls=falls, palette=palette, width=width)]

    def on_click(self, event: events.Click) -> None:
        """Sort by the column under the pointer."""
        column = column_at(self.columns(self.size.width), event.x)
        if column is not None:
            self.post_message(SortChosen(column))


class ListFrame(Vertical, Generic[Shown, Name, One]):
    """Heading, rows and perhaps a foot; `titles` says what stands in the frame."""

    DEFAULT_CSS = """
    ListFrame {
        border: round $line; border-title-color: $muted; border-subtitle-color: $muted;
        height: 1fr; min-height: 5; background: $background;
    }
    """

    def __init__(
        self,
        heading: SortHeading[Shown, Name],
        rows: CursorRows[Shown, One],
        foot: Lines[Shown] | None = None,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(*filter(None, (heading, rows, foot)), id=id)
        self._parts = (heading, rows)
        self._foot = foot
        self._titles = ("", "")

    def titles(self, view: Shown) -> tuple[str, str]:
        """What stands in the frame above and below."""
        raise NotImplementedError

    def take(self, view: Shown, palette: Palette) -> None:
        """Show `view` from now on."""
        titles = self.titles(view)
        if titles != self._titles:
            self._titles = titles
            self.border_title, self.border_subtitle = map(plain, titles)
        for part in self._parts:
            part.take(view, palette)
        if self._foot is not None:
            self._foot.take(view, palette)
