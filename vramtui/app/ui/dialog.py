"""The frame that every window over the Watch screen has, and Textual's lists in it, for terminals of sixteen colours
and of none, too.
"""

from typing import TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widgets import OptionList, SelectionList, Static
from textual.widgets.option_list import OptionDoesNotExist

from vramtui.app.terminal.screen_size import CurrentSize

Result = TypeVar("Result")


class Window(CurrentSize, ModalScreen[Result]):
    """A framed window in the middle; Escape and q close it, and so does a click beside it."""

    DEFAULT_CSS = """
    Window { align: center middle; background: $background 60%; }
    Window > #window {
        width: 90; max-width: 95%; height: auto; max-height: 95%;
        border: round $primary; border-title-color: $primary; border-subtitle-color: $muted;
        background: $surface; padding: 0 1;
    }
    Window VerticalScroll { height: auto; max-height: 80vh; background: $surface; }
    Window VerticalScroll, Window OptionList {
        scrollbar-size-vertical: 1; scrollbar-color: $line; scrollbar-background: $surface;
        scrollbar-color-hover: $primary; scrollbar-color-active: $primary;
        scrollbar-background-hover: $surface; scrollbar-background-active: $surface;
    }
    """
    BINDINGS = [Binding("escape,q", "close", "Close", id="window.close", show=False)]

    def __init__(self, title: str, hint: str = "Esc closes") -> None:
        super().__init__()
        self._title = title
        self._hint = hint

    def compose(self) -> ComposeResult:
        with Vertical(id="window") as window:
            window.border_title = self._title.replace("[", "\\[")
            window.border_subtitle = self._hint.replace("[", "\\[")
            yield from self.inside()

    def inside(self) -> ComposeResult:
        raise NotImplementedError

    def room(self, widest: int) -> int:
        """Columns for text in a window that is at most `widest` wide: frame, padding and a scroll bar are left out."""
        return min(widest, self.app.size.width * 95 // 100) - 5

    def action_close(self) -> None:
        """Close without a result."""
        self.dismiss(None)

    def on_click(self, event: object) -> None:
        """A click beside the window closes it."""
        if getattr(event, "widget", None) is self:
            self.dismiss(None)


class TextWindow(Window[None]):
    """A window of text that scrolls."""

    def inside(self) -> ComposeResult:
        with VerticalScroll(can_focus=True):
            yield Static(self.text())

    def text(self) -> Content:
        """What to show. Never markup: it may hold names that others chose."""
        raise NotImplementedError


class Confirm(Window[bool]):
    """Answers True only where `y` is pressed."""

    BINDINGS = [
        Binding("y", "yes", "Yes", id="confirm.yes", show=False),
        Binding("n", "close", "No", id="confirm.no", show=False),
    ]

    def __init__(self, title: str, question: str, hint: str = "y run · n or Esc cancel") -> None:
        super().__init__(title, hint)
        self._question = question

    def inside(self) -> ComposeResult:
        yield Static(Content(self._question))

    def action_yes(self) -> None:
        self.dismiss(result=True)


Value = TypeVar("Value")
TICKED, BARE = "[x] ", "[ ] "


class ChoiceList(OptionList):
    """Textual's own, in which the line with the cursor can be read in sixteen colours."""

    def render_line(self, y: int) -> Strip:
        """A line; in one colour where the cursor is on it."""
        line = super().render_line(y)
        return _on_cursor(line) if self.app.current_theme.ansi and _is_highlighted(self, y) else line


def _is_highlighted(options: OptionList, y: int) -> bool:
    at, lines = options.scroll_offset.y + y, options._lines  # noqa: SLF001 - Textual tells in no other way whose a line is
    return at < len(lines) and lines[at][0] == options.highlighted


def _on_cursor(line: Strip) -> Strip:
    white = Style(color="bright_white")
    return Strip([Segment(piece.text, (piece.style or Style()) + white) for piece in line])


class CheckList(SelectionList[Value]):
    """Textual's own, whose box has the same cross in it whether a line is ticked or not, but for its colour.

    The line with the cursor keeps its text readable, quiet words too.
    """

    DEFAULT_CSS = """
    CheckList { border: none; background: $surface; padding: 0; }
    CheckList:focus { border: none; }
    CheckList > .option-list--option-highlighted, CheckList:focus > .option-list--option-highlighted {
        background: $cursor; color: $foreground; text-style: $block-cursor-blurred-text-style;
    }
    """

    def render_line(self, y: int) -> Strip:
        """A line with `[x]` or `[ ]` in place of its box."""
        line = super().render_line(y)
        try:
            selection = self.get_option_at_index(self.scroll_offset.y + y)
        except OptionDoesNotExist:
            return line
        box, rest = list(line)[:4], list(line)[4:]
        # A click on the box finds its line by what its style knows.
        style = (box[3].style or Style()) + Style(meta=(box[1].style or Style()).meta)
        made = Strip([Segment(TICKED if selection.value in self.selected else BARE, style), *rest])
        return _on_cursor(made) if self.app.current_theme.ansi and _is_highlighted(self, y) else made
