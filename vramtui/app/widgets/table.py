"""The process table: a heading that sorts, and as many rows as there are, of which only the visible ones are drawn."""

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from vramtui.app.filtering import doubt
from vramtui.app.messages import RowChosen, SortChosen
from vramtui.app.state import Row, View
from vramtui.app.themes import Palette
from vramtui.app.widgets.columns import columns_for, heading, look_alike, row_strip, sort_column_at
from vramtui.app.widgets.lines import Lines, draw_lines, plain, strip, wrap
from vramtui.core.text import printable


class Heading(Lines):
    """The names of the columns, the one that sorts marked; a click sorts."""

    DEFAULT_CSS = "Heading { height: 1; }"

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """One line."""
        del height
        return [heading(columns_for(width), view, palette, width)]

    def on_click(self, event: events.Click) -> None:
        """Sort by the column under the pointer."""
        column = sort_column_at(columns_for(self.size.width), event.x)
        if column is not None:
            self.post_message(SortChosen(column))


class Rows(ScrollView, can_focus=True):
    """The rows. The cursor is the chosen row; moving it by hand makes the order stay."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Rows {
        height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1;
        background: $background; scrollbar-color: $line; scrollbar-background: $background;
        scrollbar-color-hover: $primary; scrollbar-color-active: $primary;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    """
    BINDINGS = [
        Binding("up,k", "move(-1)", "Row up", id="table.up", show=False),
        Binding("down,j", "move(1)", "Row down", id="table.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="table.page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="table.page_down", show=False),
        Binding("home", "end(0)", "First row", id="table.first", show=False),
        Binding("end", "end(-1)", "Last row", id="table.last", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.view = View()
        self.palette: Palette | None = None
        self._drawn: dict[int, Strip] = {}
        self._made: dict[int, tuple[Row, str | None, Strip]] = {}
        self._cursor = 0

    def take(self, view: View, palette: Palette) -> None:
        """Show `view` from now on; only the visible rows that differ are drawn again."""
        if palette is not self.palette:
            self._made = {}
        self.view, self.palette = view, palette
        height = max(1, len(view.rows) or self.size.height)
        if self.virtual_size.height != height:
            self.virtual_size = Size(self.size.width, height)
        self._cursor = view.chosen_at
        if view.held:
            self._keep_in_sight()
        self._redraw()

    def _redraw(self) -> None:
        former, self._drawn = self._drawn, {}
        draw_lines(self, [y for y in range(self.size.height) if self.render_line(y) != former.get(y)])

    def on_resize(self) -> None:
        """Rows are as wide as the table."""
        self._drawn, self._made = {}, {}
        self.virtual_size = Size(self.size.width, max(1, len(self.view.rows) or self.size.height))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Other rows are visible now."""
        self._drawn = {}
        first = int(new_value)
        self._made = {at: made for at, made in self._made.items() if first <= at < first + self.size.height}
        super().watch_scroll_y(old_value, new_value)

    def render_line(self, y: int) -> Strip:
        """The row at line `y` of what is visible."""
        if self.palette is None:
            return Strip.blank(self.size.width, self.rich_style)
        if y not in self._drawn:
            self._drawn[y] = self._make(y + self.scroll_offset.y, self.palette)
        return self._drawn[y]

    def _make(self, at: int, palette: Palette) -> Strip:
        width = self.size.width
        if at < len(self.view.rows):
            return self._row(at, self.view.rows[at], palette)
        lines = wrap(_empty(self.view), width - 2) if not self.view.rows else []
        text = f" {lines[at]}" if at < len(lines) else ""
        return strip([(text, palette.dim)], width, palette.text)

    def _row(self, at: int, row: Row, palette: Palette) -> Strip:
        """The strip of row `at`, the same as last time where it looks the same."""
        width, cursor = self.size.width, self._cursor_style(at)
        former = self._made.get(at)
        if former is not None and former[1] == cursor and look_alike(former[0], row):
            return former[2]
        made = row_strip(columns_for(width), row, palette, width, cursor=cursor)
        self._made[at] = (row, cursor, made)
        return made

    def _cursor_style(self, at: int) -> str | None:
        """The colour under the row: the cursor's when chosen by hand; a fainter one where it only follows."""
        if at != self._cursor:
            return None
        return "cursor" if self.view.held or self.has_focus else "bar"

    def _keep_in_sight(self) -> None:
        """Scroll where the cursor has left what is seen, by some rows at once: each time every row is sent again."""
        top, height = self.scroll_offset.y, self.size.height
        ahead = height // 3
        if self._cursor < top:
            self.scroll_to(y=max(0, self._cursor - ahead), animate=False)
        elif height and self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1 + ahead, animate=False)

    def choose(self, at: int) -> None:
        """Put the cursor on row `at`."""
        if self.view.rows:
            # Before it is drawn: the next key may come first, and goes on from here.
            self._cursor = max(0, min(len(self.view.rows) - 1, at))
            self.post_message(RowChosen(self.view.rows[self._cursor].id))

    def action_move(self, rows: int) -> None:
        """Up and down."""
        self.choose(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        """A screenful up or down."""
        self.choose(self._cursor + pages * max(1, self.size.height - 1))

    def action_end(self, at: int) -> None:
        """To the first row, or to the last one (-1)."""
        self.choose(at if at >= 0 else len(self.view.rows) - 1)

    def on_click(self, event: events.Click) -> None:
        """Choose the row under the pointer."""
        at = int(event.y) + self.scroll_offset.y
        if at < len(self.view.rows):
            self.choose(at)

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor."""
        return self.view.chosen


def _empty(view: View) -> str:
    if view.sample is None:
        return ""
    if view.filter:
        words = (f"No row holds “{view.filter}”.", doubt(view.filter), "Esc shows all of them again.")
        return printable(" ".join(filter(None, words)))
    if not view.sample.gpus:
        return "No GPUs, so no processes."
    return "Nobody uses a GPU now. Choose a preset with p to see what a job would need before it starts."


class ProcessTable(Vertical):
    """Heading and rows in a frame."""

    DEFAULT_CSS = """
    ProcessTable {
        border: round $line; border-title-color: $muted; border-subtitle-color: $muted;
        height: 1fr; min-height: 5; background: $background;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._titles = ("", "")

    def compose(self) -> ComposeResult:
        """Two parts."""
        yield Heading()
        yield Rows(id="rows")

    def take(self, view: View, palette: Palette) -> None:
        """Show `view` from now on."""
        self._entitle(view)
        self.query_one(Heading).take(view, palette)
        self.query_one(Rows).take(view, palette)

    def _entitle(self, view: View) -> None:
        count = sum(row.kind == "process" for row in view.rows) if view.filter else view.total
        title = f"Processes · {count} of {view.total}" if view.filter else f"Processes · {view.total}"
        states = []
        if view.filter:
            states.append(f"filter: {view.filter}")
        if view.held:
            states.append("order held, Esc lets go")
        titles = (title, " · ".join(states))
        if titles != self._titles:
            self._titles = titles
            self.border_title = plain(titles[0])
            self.border_subtitle = plain(titles[1])
