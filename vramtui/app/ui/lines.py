"""The base of every panel: a list of finished lines, of which only those that changed are drawn again."""

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
    """Shows lines that `build` makes of a frozen value, its view."""

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
        """The lines of `width` columns to show."""
        raise NotImplementedError

    def take(self, view: Shown, palette: Palette) -> None:
        """Show `view` from now on. A panel that cannot be seen only remembers it."""
        self.view, self.palette = view, palette
        titles = self.titles(view)
        if titles != self._titles:
            self._entitle(titles)
        self.redraw()

    def _entitle(self, titles: tuple[str, str]) -> None:
        """Put titles in the frame. Textual's own way draws the whole widget again."""
        self._border_title, self._border_subtitle = map(Content, titles)
        former, self._titles = self._titles, titles
        edges = [(0, titles[0] != former[0]), (self.outer_size.height - 1, titles[1] != former[1])]
        draw_lines(self, [y - self.gutter.top for y, is_other in edges if is_other])

    def part(self, view: Shown) -> object:
        """All of the view that the lines are made of, where it is worth it to see first whether that is another; None
        where they are to be built every time.
        """
        del view
        return None

    def titles(self, view: Shown) -> tuple[str, str]:
        """What stands in the frame above and below, where the panel has one."""
        del view
        return self._titles

    def redraw(self) -> None:
        """Build the lines again and draw those that differ from the ones on the screen."""
        size = _content_size(self)
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
        """Fill the new size, unless drawing it did so already."""
        if self._built_for != self.scrollable_content_region.size:
            self.redraw()

    def render_line(self, y: int) -> Strip:
        """One finished line. The first time in a new size they are built here: the picture is being drawn already."""
        size = self.scrollable_content_region.size
        view, palette = self.view, self.palette
        if self._built_for != size and view is not None and palette is not None and size.width and size.height:
            self._built_for = size
            self.shown = self.build(view, palette, size.width, size.height)
        if y < len(self.shown):
            return self.shown[y]
        return Strip.blank(self.size.width, self.rich_style)


class Framed(Lines[Shown]):
    """Lines in a frame that lights up while they have the keys."""

    DEFAULT_CSS = """
    Framed { border: round $line; border-title-color: $muted; border-subtitle-color: $muted; }
    Framed:focus { border: round $primary; }
    """


class Wheeled(Framed[Shown]):
    """A frame in which the wheel does something of its own."""

    def wheel(self, direction: int) -> None:
        raise NotImplementedError

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.wheel(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.wheel(-1)


def draw_lines(widget: Widget, lines: Sequence[int]) -> None:
    """Draw these lines of the widget's content again, at once where nothing is in the way."""
    if not lines:
        return
    painter = _painter(widget)
    if painter is None or not painter.paint(widget, lines):
        widget.refresh(*(Region(0, y, widget.size.width, 1) for y in lines))


def _painter(widget: Widget) -> CellPainter | None:
    """The app's, where it has one."""
    painter = getattr(widget.app, "painter", None)
    return painter if isinstance(painter, CellPainter) else None


def _content_size(widget: Widget) -> Size:
    """The columns and rows of a widget's content."""
    painter = _painter(widget)
    spot = painter.spot(widget) if painter is not None else None
    return widget.scrollable_content_region.size if spot is None else spot.size


def plain(text: str) -> str:
    """`text` as markup that shows exactly `text`."""
    return text.replace("[", "\\[")


def strip(pieces: Iterable[Piece], width: int, fill: Style) -> Strip:
    """A line of exactly `width` columns from pieces of text."""
    return Strip([Segment(text, style) for text, style in pieces if text]).adjust_cell_length(width, fill)


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` columns, its end replaced by an ellipsis where it is too long."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


def right(text: str, width: int) -> str:
    """`text` at the right of `width` columns."""
    lacking = width - cell_len(text)
    return " " * lacking + text if lacking >= 0 else fit(text, width)


def between(start: Sequence[Piece], end: Sequence[Piece], width: int, fill: Style) -> Strip:
    """A line with `start` at its left and `end` at its right; the start gives way where both do not fit."""
    length = sum(cell_len(text) for text, _ in end)
    head = Strip([Segment(text, style) for text, style in start]).adjust_cell_length(max(0, width - length), fill)
    tail = Strip([Segment(text, style) for text, style in end])
    return Strip.join([head, tail]).adjust_cell_length(width, fill)


def paragraph(text: str, palette: Palette, width: int, ink: Style | None = None) -> list[Strip]:
    """`text` in as many lines as it takes, a column from the edge; quiet where no `ink` is given."""
    return [strip([(f" {line}", ink or palette.dim)], width, palette.text) for line in wrap(text, width - 2)]


def scrolled(first: int, cursor: int, room: int, count: int, ahead: int = 0) -> int:
    """The first of `count` to show in `room`, moved no farther than to see the cursor and `ahead` beyond it."""
    first = max(cursor - room + 1 + ahead, min(first, cursor - ahead))
    return max(0, min(first, count - room))


def wrap(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` columns, broken at spaces where there are any."""
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
