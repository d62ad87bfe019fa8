"""A list whose lines are ticked or not, told apart without colours, too."""

from typing import TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widgets import SelectionList
from textual.widgets.option_list import OptionDoesNotExist

Value = TypeVar("Value")
TICKED, BARE = "[x] ", "[ ] "


class CheckList(SelectionList[Value]):
    """Textual's own, whose box has the same cross in it whether a line is ticked or not, but for its colour."""

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
        return Strip([Segment(TICKED if selection.value in self.selected else BARE, style), *rest])
