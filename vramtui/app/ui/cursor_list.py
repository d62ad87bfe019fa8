"""The base of every list with a cursor: rows that are made when they are seen, and drawn again when they differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.ui.lines import draw_lines, strip


class Identified(Protocol):
    """What a row is made of. Its `id` stays the same while all else about it changes."""

    @property
    def id(self) -> object:
        """Equal to no other row's."""
        ...


Id = TypeVar("Id")
One = TypeVar("One", bound=Identified)
Shown = TypeVar("Shown")


@dataclass
class RowChosen(Message, Generic[Id]):
    """A row was chosen by hand: what tells it from the others of its list."""

    row: Id


def moving_keys(prefix: str) -> list[BindingType]:
    """The keys that move the cursor of a list; `prefix` is what their names in the settings begin with."""
    return [
        Binding("up,k", "move(-1)", "Up", id=f"{prefix}.up", show=False),
        Binding("down,j", "move(1)", "Down", id=f"{prefix}.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id=f"{prefix}.page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id=f"{prefix}.page_down", show=False),
        Binding("home", "end(0)", "First row", id=f"{prefix}.first", show=False),
        Binding("end", "end(-1)", "Last row", id=f"{prefix}.last", show=False),
    ]


class CursorRows(ScrollView, Generic[Shown, One], can_focus=True):
    """A list of any length. Who derives from it says which rows a View has, where the cursor is, and how a row looks.

    Attributes:
        OPENS: the action of a second click on a row; none where it is empty.
    """

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    CursorRows {
        height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1;
        background: $background; scrollbar-color: $line; scrollbar-background: $background;
        scrollbar-color-hover: $primary; scrollbar-color-active: $primary;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    """
    OPENS: ClassVar[str] = ""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.view: Shown | None = None
        self.palette: Palette | None = None
        self.rows: Sequence[One] = ()
        self._cursor = 0
        self._chosen: object = None
        self._sought = False
        self._drawn: dict[int, Strip] = {}
        self._strips: dict[int, tuple[One, str | None, int, Strip]] = {}

    # --- what a list says of itself ------------------------------------------------------------------------------

    def rows_of(self, view: Shown) -> Sequence[One]:
        """All rows; only those that are seen are looked at."""
        raise NotImplementedError

    def cursor_of(self, view: Shown) -> int:
        """The place of the chosen row among them; 0 where there is none."""
        raise NotImplementedError

    def line_of(self, row: One, palette: Palette, width: int, cursor: str | None) -> Strip:
        """One row in `width` columns; `cursor` is the colour under it when it is the chosen one."""
        raise NotImplementedError

    def sentences(self, view: Shown, width: int) -> Sequence[str]:
        """What stands there instead of rows, in lines."""
        raise NotImplementedError

    def by_hand(self, view: Shown) -> bool:
        """Whether the cursor is where a person put it; else it only follows, and the list does not scroll to it."""
        del view
        return True

    def alike(self, one: One, other: One) -> bool:
        """Whether two rows are known to look the same. Rows that also go by the clock never are."""
        del one, other
        return False

    def layout_of(self, view: Shown) -> object:
        """What of a view decides how every row is laid out; where that changes, all are made again."""
        del view
        return None

    # --- drawing -------------------------------------------------------------------------------------------------

    @property
    def breadth(self) -> int:
        """How wide the list is with its scroll bar: columns laid out in it stay where they are when the bar comes."""
        return self.outer_size.width

    @property
    def room(self) -> int:
        """How wide its rows are: what the scroll bar leaves. Textual's own `size` has the bar in it."""
        return self.scrollable_content_region.width

    def take(self, view: Shown, palette: Palette) -> None:
        """Show `view` from now on; only the visible rows that differ are drawn again."""
        if palette is not self.palette or self.view is None or self.layout_of(view) != self.layout_of(self.view):
            self._strips = {}
        followed = self._sought or self._is_in_sight
        self.view, self.palette, self.rows = view, palette, self.rows_of(view)
        self._stretch()
        self._cursor = self.cursor_of(view)
        former, self._chosen = self._chosen, self.rows[self._cursor].id if self._cursor < len(self.rows) else None
        if self.by_hand(view) and (followed or former != self._chosen):
            self._keep_in_sight()
        self._sought = False
        self.redraw()

    def _stretch(self) -> None:
        height = max(1, len(self.rows) or self.size.height)
        if self.virtual_size != (self.size.width, height):
            self.virtual_size = Size(self.size.width, height)

    @property
    def lines_drawn(self) -> int:
        """How many lines are drawn: no more than are visible."""
        return len(self._drawn)

    def redraw(self) -> None:
        """Draw the lines that are not as they were."""
        former, self._drawn = self._drawn, {}
        width, top = self.room, self.scroll_offset.y
        if self.palette is None:
            return
        for y in range(self.size.height):
            self._drawn[y] = self._make(y + top, self.palette, width)
        draw_lines(self, [y for y, line in self._drawn.items() if _differ(line, former.get(y))])

    def on_resize(self) -> None:
        """Rows are as wide as the list, and the cursor may be beyond its end."""
        self._drawn, self._strips, self._sought = {}, {}, True
        self._stretch()

    def watch_show_vertical_scrollbar(self, _shown: bool) -> None:
        """Draw the rows again: Textual narrows the list by its scroll bar without telling it."""
        self._drawn = {}
        self.refresh()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        self._drawn = {}
        first = int(new_value)
        self._strips = {at: line for at, line in self._strips.items() if first <= at < first + self.size.height}
        super().watch_scroll_y(old_value, new_value)

    def render_line(self, y: int) -> Strip:
        """The row at line `y` of what is visible."""
        if self.palette is None:
            return Strip.blank(self.size.width, self.rich_style)
        if y not in self._drawn:
            self._drawn[y] = self._make(y + self.scroll_offset.y, self.palette, self.room)
        return self._drawn[y]

    def _make(self, at: int, palette: Palette, width: int) -> Strip:
        if at < len(self.rows):
            return self._row(at, self.rows[at], palette, width)
        lines = self.sentences(self.view, width - 2) if self.view is not None and not self.rows else ()
        return strip([(f" {line}", palette.dim) for line in lines[at : at + 1]], width, palette.text)

    def _row(self, at: int, row: One, palette: Palette, width: int) -> Strip:
        """The strip of row `at`, the same as last time where it looks the same."""
        cursor = self._cursor_style(at)
        former = self._strips.get(at)
        if former is not None and former[1:3] == (cursor, width) and self.alike(former[0], row):
            return former[3]
        line = self.line_of(row, palette, width, cursor)
        self._strips[at] = (row, cursor, width, line)
        return line

    def _cursor_style(self, at: int) -> str | None:
        """The colour under the row: the cursor's where the keys are; a fainter one elsewhere."""
        if at != self._cursor:
            return None
        return "cursor" if self.has_focus else "bar"

    # --- moving --------------------------------------------------------------------------------------------------

    @property
    def _is_in_sight(self) -> bool:
        return 0 <= self._cursor - self.scroll_offset.y < self.size.height

    def _keep_in_sight(self) -> None:
        """Scroll where the cursor has left what is seen, by some rows at once: each time every row is sent again."""
        top, height = self.scroll_offset.y, self.size.height
        ahead = height // 3
        if self._cursor < top:
            self.scroll_to(y=max(0, self._cursor - ahead), animate=False)
        elif height and self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1 + ahead, animate=False)

    def choose(self, at: int) -> None:
        """Put the cursor on row `at`, or on the nearest one that there is."""
        if self.rows:
            # Before it is drawn: the next key may come first, and goes on from here.
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


def _differ(line: Strip, former: Strip | None) -> bool:
    """Whether two lines look different. Most are the very same: comparing those takes long."""
    return line is not former and line != former
