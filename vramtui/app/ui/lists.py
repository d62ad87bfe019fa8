"""Lists with a cursor, columns and a heading: rows are made when they are seen, and drawn again when they differ."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import msgspec
from textual import events
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, draw_lines, fit, plain, right, strip
from vramtui.core.base.units import format_percent
from vramtui.core.estimate.estimate import USUAL_ERROR


class Identified(Protocol):
    """A row with an `id` that stays the same while everything else changes, and that no other row has."""

    @property
    def id(self) -> object: ...


Id = TypeVar("Id")
Name = TypeVar("Name", bound=str)
One = TypeVar("One", bound=Identified)
Shown = TypeVar("Shown")
WITHOUT_TENTHS = 0.9995  # 99.95 % is written 100.0 %


class Column(msgspec.Struct, Generic[Name], frozen=True):
    """One column; `width` 0 takes the rest."""

    name: Name
    title: str
    width: int
    numeric: bool = False


Columns = tuple[Column[Name], ...]


class ColumnSort(Generic[Name]):
    """The column that sorts a list, and whether its order is reversed. Subclasses name all columns, and those that
    begin with the largest value.
    """

    __slots__ = ("reverse", "sort")

    COLUMNS: ClassVar[tuple[str, ...]]
    FROM_THE_LARGEST: ClassVar[Collection[str]]

    def __init__(self, sort: Name) -> None:
        self.sort = sort
        self.reverse = False

    @property
    def falls(self) -> bool:
        """The largest value comes first."""
        return (self.sort in self.FROM_THE_LARGEST) != self.reverse

    def sort_by(self, column: Name) -> None:
        """Sort by the column; by the same one again, reverse the order."""
        self.reverse = not self.reverse if column == self.sort else False
        self.sort = column

    def sort_next(self, direction: int) -> None:
        at = self.COLUMNS.index(self.sort) + direction
        self.sort_by(cast("Name", self.COLUMNS[at % len(self.COLUMNS)]))


def narrowed(
    columns: Columns[Name], widths: Mapping[Any, int], titles: Mapping[Any, str] | None = None
) -> Columns[Name]:
    """Return the columns named in `widths` with that width, some with a shorter title."""
    shorter = titles or {}
    return tuple(
        Column(column.name, shorter.get(column.name, column.title), widths[column.name], column.numeric)
        for column in columns
        if column.name in widths
    )


def filled(columns: Iterable[Column[Name]], width: int, least: int = 0) -> tuple[Column[Name], ...]:
    """Return the columns of a list `width` wide: the one without a width has the rest, `least` or more."""
    columns = tuple(columns)
    rest = max(least, width - sum(column.width for column in columns))
    return tuple(column if column.width else msgspec.structs.replace(column, width=rest) for column in columns)


def cell(text: str, column: Column[Name]) -> str:
    return right(text, column.width) if column.numeric else " " + fit(text, column.width - 1)


def under_cursor(pieces: list[Piece], cursor: str | None) -> list[Piece]:
    if cursor is None:
        return pieces
    (text, style), *others = pieces
    return [("▸" + text[1:], style), *others]


def short_name(card: str) -> str:
    return card.removeprefix("NVIDIA ").removeprefix("GeForce ")


def delta_colour(fraction: float) -> str:
    """Return red above the prediction, green near it, and the text's colour below."""
    if fraction > USUAL_ERROR:
        return "error"
    return "success" if fraction >= -USUAL_ERROR else "foreground"


def delta_text(fraction: float | None) -> str:
    """Return a difference in per cent, without tenths from 100 % on, which would fill the gap before it."""
    return format_percent(fraction, 0 if abs(fraction or 0) >= WITHOUT_TENTHS else 1)


@dataclass
class RowChosen(Message, Generic[Id]):
    """The user chose the row with this id."""

    row: Id


@dataclass
class SortChosen(Message, Generic[Name]):
    """The heading of a column was clicked."""

    column: Name


def moving_keys(prefix: str) -> list[BindingType]:
    """Return the keys that move the cursor of a list; their names in the settings begin with `prefix`."""
    return [
        Binding(keys, action, words, id=f"{prefix}.{name}", show=False)
        for keys, action, words, name in (
            ("up,k", "move(-1)", "Up", "up"),
            ("down,j", "move(1)", "Down", "down"),
            ("pageup", "page(-1)", "Page up", "page_up"),
            ("pagedown", "page(1)", "Page down", "page_down"),
            ("home", "end(0)", "First row", "first"),
            ("end", "end(-1)", "Last row", "last"),
        )
    ]


class CursorRows(ScrollView, Generic[Shown, One], can_focus=True):
    """A list of any length. Subclasses say which rows a View has, where the cursor is, how a row looks, and which
    action a second click `OPENS`.
    """

    ALLOW_SELECT = False
    OPENS: ClassVar[str] = ""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.view: Shown | None = None
        self.palette: Palette | None = None
        self.rows: Sequence[One] = ()
        self._cursor = 0
        self._chosen: object = None
        self._sought = False
        self.drawn: dict[int, Strip] = {}
        self._strips: dict[int, tuple[One, str | None, int, Strip]] = {}

    def rows_of(self, view: Shown) -> Sequence[One]:
        """Return all rows; only those that are seen are looked at."""
        raise NotImplementedError

    def cursor_of(self, view: Shown) -> int:
        """Return the place of the chosen row; 0 without one."""
        raise NotImplementedError

    def line_of(self, row: One, palette: Palette, width: int, cursor: str | None) -> Strip:
        """Return one row in `width` columns; `cursor` is the colour under the chosen one."""
        raise NotImplementedError

    def sentences(self, view: Shown, width: int) -> Sequence[str]:
        """Return the lines to show without rows."""
        raise NotImplementedError

    def by_hand(self, view: Shown) -> bool:
        """Return whether the user chose the row; else the list does not scroll to it."""
        return True

    def alike(self, one: One, other: One) -> bool:
        """Return whether two rows are known to look the same; never if they also depend on the clock."""
        return False

    def layout_of(self, view: Shown) -> object:
        """Return what decides the layout of every row; when it changes, all are made again."""
        return None

    @property
    def breadth(self) -> int:
        """Width of the list with its scroll bar, so that columns stay in place when the bar appears."""
        return self.outer_size.width

    @property
    def room(self) -> int:
        """Width of the rows, without the scroll bar; Textual's `size` includes it."""
        return self.scrollable_content_region.width

    def take(self, view: Shown, palette: Palette) -> None:
        if palette is not self.palette or self.view is None or self.layout_of(view) != self.layout_of(self.view):
            self._strips = {}
        followed = self._sought or 0 <= self._cursor - self.scroll_offset.y < self.size.height
        self.view, self.palette, self.rows = view, palette, self.rows_of(view)
        self._stretch()
        self._cursor = self.cursor_of(view)
        former, self._chosen = self._chosen, self.rows[self._cursor].id if self._cursor < len(self.rows) else None
        if self.by_hand(view) and (followed or former != self._chosen):
            # Keep the cursor in sight, by several rows at once, because each time every row is sent again.
            top, height = self.scroll_offset.y, self.size.height
            if self._cursor < top:
                self.scroll_to(y=max(0, self._cursor - height // 3), animate=False)
            elif height and self._cursor >= top + height:
                self.scroll_to(y=self._cursor - height + 1 + height // 3, animate=False)
        self._sought = False
        self.redraw()

    def _stretch(self) -> None:
        height = max(1, len(self.rows) or self.size.height)
        if self.virtual_size != (self.size.width, height):
            self.virtual_size = Size(self.size.width, height)

    def redraw(self) -> None:
        former, self.drawn = self.drawn, {}
        width, top = self.room, self.scroll_offset.y
        if self.palette is None:
            return
        for y in range(self.size.height):
            self.drawn[y] = self._make(y + top, self.palette, width)
        # Most lines are the very same: comparing those takes long.
        changed = [y for y, line in self.drawn.items() if line is not (old := former.get(y)) and line != old]
        draw_lines(self, changed)

    def on_resize(self) -> None:
        self.drawn, self._strips, self._sought = {}, {}, True
        self._stretch()

    def watch_show_vertical_scrollbar(self, _shown: bool) -> None:
        """Draw the rows again: Textual narrows the list by its scroll bar without an event."""
        self.drawn = {}
        self.refresh()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        self.drawn = {}
        first = int(new_value)
        self._strips = {at: line for at, line in self._strips.items() if first <= at < first + self.size.height}
        super().watch_scroll_y(old_value, new_value)

    def render_line(self, y: int) -> Strip:
        if self.palette is None:
            return Strip.blank(self.size.width, self.rich_style)
        if y not in self.drawn:
            self.drawn[y] = self._make(y + self.scroll_offset.y, self.palette, self.room)
        return self.drawn[y]

    def _make(self, at: int, palette: Palette, width: int) -> Strip:
        """Return the strip of row `at`, the same as last time if it looks the same."""
        if at >= len(self.rows):
            lines = self.sentences(self.view, width - 2) if self.view is not None and not self.rows else ()
            return strip([(f" {line}", palette.dim) for line in lines[at : at + 1]], width, palette.text)
        row, cursor = self.rows[at], self._cursor_style(at)
        former = self._strips.get(at)
        if former is not None and former[1:3] == (cursor, width) and self.alike(former[0], row):
            return former[3]
        line = self.line_of(row, palette, width, cursor)
        self._strips[at] = (row, cursor, width, line)
        return line

    def _cursor_style(self, at: int) -> str | None:
        """Return the colour under the row: the cursor's with the focus, a fainter one without."""
        if at != self._cursor:
            return None
        return "cursor" if self.has_focus else "bar"

    def choose(self, at: int) -> None:
        if self.rows:
            # Before it is drawn: the next key may come first, and moves on from here.
            self._cursor, self._sought = max(0, min(len(self.rows) - 1, at)), True
            self.post_message(RowChosen(self.rows[self._cursor].id))

    def action_move(self, rows: int) -> None:
        self.choose(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        self.choose(self._cursor + pages * max(1, self.size.height - 1))

    def action_end(self, at: int) -> None:
        """Move the cursor to the first row, or to the last one (-1)."""
        self.choose(at if at >= 0 else len(self.rows) - 1)

    async def on_click(self, event: events.Click) -> None:
        """Choose the row under the pointer; the second click opens it."""
        at = int(event.y) + self.scroll_offset.y
        if at < len(self.rows):
            self.choose(at)
            if event.chain > 1 and self.OPENS:
                await self.app.run_action(self.OPENS)


class SortHeading(Lines[Shown], Generic[Shown, Name]):
    """The names of the columns for a view and a width, the one that sorts marked; a click sorts. `sorting` gives that
    column, and whether the largest value comes first.
    """

    def __init__(
        self, columns: Callable[[Shown | None, int], Columns[Name]], sorting: Callable[[Shown], tuple[Name, bool]]
    ) -> None:
        super().__init__()
        self._columns, self._sorting = columns, sorting

    def build(self, view: Shown, palette: Palette, width: int, height: int) -> list[Strip]:
        (sort, falls), pieces = self._sorting(view), list[Piece]()
        for column in self._columns(self.view, width):
            sorts = column.name == sort
            title = column.title + ("▾" if falls else "▴") if sorts else column.title
            pieces.append((cell(title, column), palette.ink("primary" if sorts else "muted", bold=True)))
        return [strip(pieces, width, palette.text)]

    def on_click(self, event: events.Click) -> None:
        """Sort by the column under the pointer."""
        start = 0
        for column in self._columns(self.view, self.size.width):
            start += column.width
            if event.x < start:
                self.post_message(SortChosen(column.name))
                return


class ListFrame(Vertical, Generic[Shown, Name, One]):
    """Heading, rows and an optional foot in a frame with titles."""

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
        raise NotImplementedError

    def take(self, view: Shown, palette: Palette) -> None:
        titles = self.titles(view)
        if titles != self._titles:
            self._titles = titles
            self.border_title, self.border_subtitle = map(plain, titles)
        for part in self._parts:
            part.take(view, palette)
        if self._foot is not None:
            self._foot.take(view, palette)
