"""The base of every panel: a list of finished lines; only those that changed are drawn again."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from vramtui.app.terminal.cell_painter import CellPainter
from vramtui.app.themes import Palette

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
        """Return the titles of the frame, above and below."""
        return self._titles

    def redraw(self) -> None:
        painter = _painter(self)
        spot = painter.spot(self) if painter is not None else None
        size = self.scrollable_content_region.size if spot is None else spot.size
        if self.view is None or self.palette is None or not size.width or not size.height or not self.display:
            return
        built_of = (self.palette, size, self.part(self.view))
        if built_of[2] is not None and built_of == self._built_of:
            return
        lines = self.build(self.view, self.palette, size.width, size.height)
        self._built_for, self._built_of = size, built_of
        former, self.shown = self.shown, lines
        changed = [
            y
            for y in range(min(size.height, max(len(lines), len(former))))
            if y >= len(lines) or y >= len(former) or lines[y] != former[y]
        ]
        draw_lines(self, changed)

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
        if y < len(self.shown):
            return self.shown[y]
        return Strip.blank(self.size.width, self.rich_style)


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
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


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


def scrolled(first: int, cursor: int, room: int, count: int, ahead: int = 0) -> int:
    """Return the first of `count` to show in `room`, moved only as far as to see the cursor and `ahead` beyond it."""
    first = max(cursor - room + 1 + ahead, min(first, cursor - ahead))
    return max(0, min(first, count - room))


def wrap(text: str, width: int) -> list[str]:
    """Return `text` in lines of `width` columns or less, broken at spaces if possible."""
    lines: list[str] = []
    line = ""
    for word in text.split():
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
