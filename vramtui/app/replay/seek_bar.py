"""The line in which a place in a recording is typed."""

from collections.abc import Callable

from textual.binding import Binding
from textual.widgets import Input


class SeekBar(Input):
    """Enter goes there, Escape stays.

    Args:
        seek: goes to what was typed; returns the sentence that says why it cannot, or nothing.
    """

    DEFAULT_CSS = """
    SeekBar { border: none; height: 1; padding: 0 1; background: $panel; }
    SeekBar:focus { border: none; }
    """
    BINDINGS = [
        Binding("escape", "give_up", "stay", id="seek.give_up", tooltip="Cancel"),
        Binding("enter", "go", "go", id="seek.go", tooltip="Go to this time"),
    ]

    def __init__(self, seek: Callable[[str], str]) -> None:
        super().__init__(placeholder="go to: 12:03:20, +90, -1m30s or 50%")
        self.cursor_blink = False
        self._seek = seek

    def on_mount(self) -> None:
        """Take the keys."""
        self.focus()

    def action_go(self) -> None:
        """Go there, or say why not and let the text be mended."""
        problem = self._seek(self.value) if self.value.strip() else ""
        if problem:
            self.app.notify(problem, severity="warning", markup=False)
        else:
            self.action_give_up()

    def action_give_up(self) -> None:
        """Give the keys back."""
        self.screen.focus_next()
        self.remove()
