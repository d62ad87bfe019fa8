"""Windows over a screen: their frame, windows of text, and questions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from vramtui.app.terminal.textual_private import CurrentSize

Result = TypeVar("Result")


def ask(app: App[Any], window: "Window[Result]", then: Callable[[Result], object]) -> None:

    def take(answer: Result | None) -> None:
        if answer is not None:
            then(answer)

    app.push_screen(window, take)


class Window(CurrentSize, ModalScreen[Result]):
    """A framed window in the middle; Escape, q and a click beside it close it."""

    CSS_PATH = Path(__file__).with_name("windows.tcss")  # absolute: subclasses are in other folders
    BINDINGS = [Binding("escape,q", "close", "Close", id="window.close", show=False)]

    def __init__(self, title: str, hint: str = "Esc closes") -> None:
        super().__init__()
        self._title, self._hint = title, hint

    def compose(self) -> ComposeResult:
        with Vertical(id="window") as window:
            window.border_title = self._title.replace("[", "\\[")
            window.border_subtitle = self._hint.replace("[", "\\[")
            yield from self.inside()

    def inside(self) -> ComposeResult:
        """Yield the window's contents."""
        raise NotImplementedError

    def room(self, widest: int) -> int:
        """Return the columns for text in a window up to `widest` wide, without frame, padding and scroll bar."""
        return min(widest, self.app.size.width * 95 // 100) - 5

    def action_close(self) -> None:
        self.dismiss(None)

    def on_click(self, event: object) -> None:
        if getattr(event, "widget", None) is self:
            self.dismiss(None)


class TextWindow(Window[None]):
    """A window of text that scrolls."""

    def inside(self) -> ComposeResult:
        with VerticalScroll(can_focus=True):
            yield Static(self.text())

    def text(self) -> Content:
        """Return the text; never markup, because it may have names that others chose."""
        raise NotImplementedError


class Confirm(Window[bool]):
    """Answers True only to `y`."""

    BINDINGS = [
        Binding("y", "yes", "Yes", id="confirm.yes", show=False),
        Binding("n", "close", "No", id="confirm.no", show=False),
    ]

    def __init__(self, title: str, question: str, hint: str = "y run · n or Esc cancel") -> None:
        super().__init__(title, hint)
        self._question = question

    def inside(self) -> ComposeResult:
        yield Static(Content(self._question))  # never as markup

    def action_yes(self) -> None:
        self.dismiss(result=True)
