"""The base of every panel, a list of finished lines, and lists with a cursor, columns and a heading."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from vramtui.app.terminal.cell_painter import CellPainter
from vramtui.app.themes import Palette
from vramtui.core.base.units import format_percent
from vramtui.core.estimate.estimate import USUAL_ERROR

Piece = tuple[str, Style]
Shown = TypeVar("Shown")


class Lines(Widget, Generic[Shown], can_focus=False):
    """Shows lines that `build` makes from a frozen value, its view."""

    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.shown: list[Strip] = []
        self.view: Shown | None = None
        self.palette: Palette | None = None
        self._built_for = Size(0, 0)
        self._built_of: tuple[Palette, Size, object] | None = None
        self._titles = ("", "")

    def build(self, view: Shown, palette: Palette, width: int, height: int) -> list[Strip]:
        raise NotImplementedError

    def take(self, view: Shown, palette: Palette) -> None:
        """Show `view`. A hidden panel only keeps it."""
        self.view, self.palette = view, palette
        former, titles = self._titles, self.titles(view)
        if titles != former:  # Textual's own way draws the whole widget again
            self._border_title, self._border_subtitle = map(Content, titles)
            self._titles = titles
            edges = [(0, titles[0] != former[0]), (self.outer_size.height - 1, titles[1] != former[1])]
            draw_lines(self, [y - self.gutter.top for y, is_other in edges if is_other])
        self.redraw()

    def part(self, view: Shown) -> object:
        """Return all of the view that decides the lines, to skip building equal ones; None to build them always."""
        return None

    def titles(self, view: Shown) -> tuple[str, str]:
        return self._titles

    def redraw(self) -> None:
        if self.view is None or self.palette is None or not self.display:
            return
        painter = _painter(self)
        spot = painter.spot(self) if painter is not None else None
        size = self.scrollable_content_region.size if spot is None else spot.size
        if not size.width or not size.height:
            return
        built_of = (self.palette, size, self.part(self.view))
        if built_of[2] is not None and built_of == self._built_of:
            return
        lines = self.build(self.view, self.palette, size.width, size.height)
        self._built_for, self._built_of = size, built_of
        former, self.shown = self.shown, lines
        pairs = enumerate(zip_longest(lines, former))
        draw_lines(self, [y for y, (line, old) in pairs if y < size.height and line != old])

    def on_resize(self) -> None:
        """Fill the new size, unless drawing has filled it."""
        if self._built_for != self.scrollable_content_region.size:
            self.redraw()

    def render_line(self, y: int) -> Strip:
        """Return one finished line. In a new size the lines are built here, because drawing has begun."""
        size = self.scrollable_content_region.size
        view, palette = self.view, self.palette
        if self._built_for != size and view is not None and palette is not None and size.width and size.height:
            self._built_for = size
            self.shown = self.build(view, palette, size.width, size.height)
        return self.shown[y] if y < len(self.shown) else Strip.blank(self.size.width, self.rich_style)


class Framed(Lines[Shown]):
    """Lines in a frame that is highlighted with the focus."""


class Wheeled(Framed[Shown]):
    """A frame with its own action for the mouse wheel."""

    def wheel(self, direction: int) -> None:
        raise NotImplementedError

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.wheel(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.wheel(-1)


def draw_lines(widget: Widget, lines: Sequence[int]) -> None:
    """Draw these lines of the widget's content again, at once if nothing covers them."""
    if not lines:
        return
    painter = _painter(widget)
    if painter is None or not painter.paint(widget, lines):
        widget.refresh(*(Region(0, y, widget.size.width, 1) for y in lines))


def _painter(widget: Widget) -> CellPainter | None:
    painter = getattr(widget.app, "painter", None)
    return painter if isinstance(painter, CellPainter) else None


def plain(text: str) -> str:
    return text.replace("[", "\\[")


def strip(pieces: Iterable[Piece], width: int, fill: Style) -> Strip:
    return Strip([Segment(text, style) for text, style in pieces if text]).adjust_cell_length(width, fill)


def fit(text: str, width: int) -> str:
    """Return `text` in exactly `width` columns, with an ellipsis if it is too long."""
    if width <= 0:
        return ""
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def right(text: str, width: int) -> str:
    lacking = width - cell_len(text)
    return " " * lacking + text if lacking >= 0 else fit(text, width)


def between(start: Sequence[Piece], end: Sequence[Piece], width: int, fill: Style) -> Strip:
    """Return a line with `start` at its left and `end` at its right; the start is cut if both do not fit."""
    length = sum(cell_len(text) for text, _ in end)
    head = Strip([Segment(text, style) for text, style in start]).adjust_cell_length(max(0, width - length), fill)
    tail = Strip([Segment(text, style) for text, style in end])
    return Strip.join([head, tail]).adjust_cell_length(width, fill)


def paragraph(text: str, palette: Palette, width: int, ink: Style | None = None) -> list[Strip]:
    """Return `text` in as many lines as it takes, a column from the edge; dimmed without an `ink`."""
    return [strip([(f" {line}", ink or palette.dim)], width, palette.text) for line in wrap(text, width - 2)]


def scrolled(first: int, cursor: int, room: int, count: int) -> int:
    """Return the first of `count` to show in `room`, moved only as far as to see the cursor."""
    return max(0, min(max(cursor - room + 1, min(first, cursor)), count - room))


_strip = lru_cache(8)(strip)  # the same line again and again
_BREAK = re.compile(r"\s+(?!%|[KMGT]iB\b)")


def wrap(text: str, width: int) -> list[str]:
    """Return `text` in lines of `width` columns or less, broken at spaces if possible, but not before a unit."""
    lines: list[str] = []
    line = ""
    for word in _BREAK.split(text.strip()):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        line = fit(word, width) if cell_len(word) > width else word
    if line:
        lines.append(line)
    return lines


class Identified(Protocol):
    """A row with an `id` that stays the same while everything else changes, and that no other row has."""

    @property
    def id(self) -> object: ...


Id = TypeVar("Id")
Name = TypeVar("Name", bound=str)
One = TypeVar("One", bound=Identified)
WITHOUT_TENTHS = 0.9995  # 99.95 % is written 100.0 %


class Column(msgspec.Struct, Generic[Name], frozen=True):
    """One column; `width` 0 takes the rest."""

    name: Name
    title: str
    width: int
    numeric: bool = False


Columns = tuple[Column[Name], ...]


class ListModel(Generic[Name, One]):
    """A list's rows, its filter, the chosen row, and the order: the column, and whether it is reversed. Subclasses name
    all columns, and those that begin with the largest value.
    """

    __slots__ = ("_chosen", "_last_at", "_rows", "filter", "reverse", "sort")

    COLUMNS: ClassVar[tuple[str, ...]]
    FROM_THE_LARGEST: ClassVar[Collection[str]]

    def __init__(self, sort: Name) -> None:
        self.sort, self.reverse, self.filter = sort, False, ""
        self._chosen: object = None
        self._last_at = 0
        self._rows: Sequence[One] = ()

    @property
    def falls(self) -> bool:
        return (self.sort in self.FROM_THE_LARGEST) != self.reverse

    def sort_by(self, column: Name) -> None:
        """Sort by the column; by the same one again, reverse the order."""
        self.reverse = not self.reverse if column == self.sort else False
        self.sort = column

    def sort_next(self, direction: int) -> None:
        at = self.COLUMNS.index(self.sort) + direction
        self.sort_by(cast("Name", self.COLUMNS[at % len(self.COLUMNS)]))

    def set_filter(self, text: str) -> None:
        self.filter = text

    def choose(self, row: object) -> None:
        self._chosen = row

    @property
    def selected(self) -> One | None:
        """The chosen row; if it is gone, the one in its place."""
        for at, row in enumerate(self._rows):
            if row.id == self._chosen:
                self._last_at = at
                return row
        return self._rows[min(self._last_at, len(self._rows) - 1)] if self._rows else None


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
    return card.removeprefix("NVIDIA ").removeprefix("GeForce ").removeprefix("AMD ")


def delta_colour(fraction: float) -> str:
    """Return red above the prediction, green near it, and the text's colour below."""
    return "error" if fraction > USUAL_ERROR else "success" if fraction >= -USUAL_ERROR else "foreground"


def delta_text(fraction: float | None) -> str:
    """Return a difference in per cent, without tenths from 100 % on, which would fill the gap before it."""
    return format_percent(fraction, 0 if abs(fraction or 0) >= WITHOUT_TENTHS else 1)


@dataclass
class RowChosen(Message, Generic[Id]):
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

    def rows_of(self, view: Shown) -> tuple[Sequence[One], int]:
        """Return all rows, and the place of the chosen one, 0 without one; only rows that are seen are looked at."""
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
        self.view, self.palette = view, palette
        self.rows, self._cursor = self.rows_of(view)
        self._stretch()
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
        self.drawn = {y: self._make(y + top, self.palette, width) for y in range(self.size.height)}
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
            if self.rows:
                return _strip((), width, palette.text)
            lines = self.sentences(self.view, width - 2) if self.view is not None else ()
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
        return None if at != self._cursor else "cursor" if self.has_focus else "bar"

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
