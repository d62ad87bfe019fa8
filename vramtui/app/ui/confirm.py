"""A question before something that cannot be taken back."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from vramtui.app.ui.dialog import Window


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
        """The question, never as markup."""
        yield Static(Content(self._question))

    def action_yes(self) -> None:
        """Go on."""
        self.dismiss(result=True)
