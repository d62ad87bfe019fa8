"""The list of past runs: a heading that sorts, and a row for each, of which only the visible ones are drawn."""

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from vramtui.app.messages import RunChosen, RunSortChosen
from vramtui.app.past import PastView
from vramtui.app.state import View
from vramtui.app.themes import Palette
from vramtui.app.widgets.lines import Lines, plain, strip, wrap
from vramtui.app.widgets.run_columns import column_at, heading, run_strip
from vramtui.core.text import printable

EMPTY = (
    "No run is kept yet.",
    "The dashboard keeps every job that runs a preset while it is watched.",
    "A preset's [match] recognises its job; on the Watch screen m says by hand which preset a process runs.",
    "vramtui run --preset NAME -- COMMAND keeps a job with PyTorch's own figures beside the driver's.",
)


class RunHeading(Lines):
    """The names of the columns, the one that sorts marked; a click sorts."""

    DEFAULT_CSS = "RunHeading { height: 1; }"

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """One line."""
        del height
        return [heading(view.past or PastView(), palette, width)]

    def on_click(self, event: events.Click) -> None:
        """Sort by the column under the pointer."""
        column = column_at(self.size.width, event.x)
        if column is not None:
            self.post_message(RunSortChosen(column))


class RunRows(ScrollView, can_focus=True):
    """The rows; the cursor is the chosen run."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    RunRows {
        height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1;
        background: $background; scrollbar-color: $line; scrollbar-background: $background;
        scrollbar-color-hover: $primary; scrollbar-color-active: $primary;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    """
    BINDINGS = [
        Binding("up,k", "move(-1)", "Row up", id="runs.up", show=False),
        Binding("down,j", "move(1)", "Row down", id="runs.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="runs.page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="runs.page_down", show=False),
        Binding("home", "end(0)", "First row", id="runs.first", show=False),
        Binding("end", "end(-1)", "Last row", id="runs.last", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.past = PastView()
        self.palette: Palette | None = None
        self._cursor = 0

    def take(self, view: View, palette: Palette) -> None:
        """Show the runs of `view` from now on."""
        former, self.past, self.palette = self.past, view.past or PastView(), palette
        height = max(1, len(self.past.runs) or self.size.height)
        if self.virtual_size.height != height:
            self.virtual_size = Size(self.size.width, height)
        chosen = self.past.chosen
        self._cursor = next((at for at, kept in enumerate(self.past.runs) if kept is chosen), 0)
        if former.chosen is not None and chosen is not None and former.chosen.id != chosen.id:
            self._keep_in_sight()
        self.refresh()

    def on_resize(self) -> None:
        """Rows are as wide as the list."""
        self.virtual_size = Size(self.size.width, max(1, len(self.past.runs) or self.size.height))

    def on_focus(self) -> None:
        """Show the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Show it fainter."""
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The row at line `y` of what is visible."""
        width, at = self.size.width, y + self.scroll_offset.y
        if self.palette is None:
            return Strip.blank(width, self.rich_style)
        if at < len(self.past.runs):
            on = None
            if at == self._cursor:
                on = "cursor" if self.has_focus else "bar"
            return run_strip(self.past.runs[at].run, self.past.now, self.palette, width, on)
        text = _sentences(self.past, width - 2)[at : at + 1] if not self.past.runs else []
        return strip([(f" {line}", self.palette.dim) for line in text], width, self.palette.text)

    def choose(self, at: int) -> None:
        """Put the cursor on row `at`."""
        if self.past.runs:
            self.post_message(RunChosen(self.past.runs[max(0, min(len(self.past.runs) - 1, at))].id))

    def action_move(self, rows: int) -> None:
        """Up and down."""
        self.choose(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        """A screenful up or down."""
        self.choose(self._cursor + pages * max(1, self.size.height - 1))

    def action_end(self, at: int) -> None:
        """To the first row, or to the last one (-1)."""
        self.choose(at if at >= 0 else len(self.past.runs) - 1)

    async def on_click(self, event: events.Click) -> None:
        """Choose the row under the pointer; the second click opens it."""
        at = int(event.y) + self.scroll_offset.y
        if at < len(self.past.runs):
            self.choose(at)
            if event.chain > 1:
                await self.app.run_action("app.open_run")

    def _keep_in_sight(self) -> None:
        top, height = self.scroll_offset.y, self.size.height
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False)
        elif height and self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1, animate=False)


class RunTable(Vertical):
    """Heading and rows in a frame."""

    DEFAULT_CSS = """
    RunTable {
        border: round $line; border-title-color: $muted; border-subtitle-color: $muted;
        height: 1fr; min-height: 5; background: $background;
    }
    """

    def compose(self) -> ComposeResult:
        """Two parts."""
        yield RunHeading()
        yield RunRows(id="runs")

    def take(self, view: View, palette: Palette) -> None:
        """Show the runs of `view` from now on."""
        past = view.past or PastView()
        count = f"{len(past.runs)} of {past.total}" if past.filter else str(past.total)
        self.border_title = plain(f"Runs · {count}{f' · {past.note}' if past.note else ''}")
        unit = "peaks in GiB" if past.runs else ""
        self.border_subtitle = plain(f"filter: {printable(past.filter)}, Esc shows all" if past.filter else unit)
        self.query_one(RunHeading).take(view, palette)
        self.query_one(RunRows).take(view, palette)


def _sentences(past: PastView, width: int) -> list[str]:
    """What stands there instead of runs."""
    if past.problem:
        return wrap(printable(past.problem), width)
    if not past.is_read:
        return ["Reading the history …"]
    if past.filter:
        return wrap(f"No run holds “{printable(past.filter)}”. Esc shows all of them again.", width)
    return [line for sentence in EMPTY for line in [*wrap(sentence, width), ""]]
