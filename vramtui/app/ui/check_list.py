"""Textual's lists, for terminals of sixteen colours and of none, too."""

from typing import TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widgets import OptionList, SelectionList
from textual.widgets.option_list import OptionDoesNotExist

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
        shown = Strip([Segment(TICKED if selection.value in self.selected else BARE, style), *rest])
        return _on_cursor(shown) if self.app.current_theme.ansi and _is_highlighted(self, y) else shown
