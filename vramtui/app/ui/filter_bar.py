"""The line in which the process table's filter is typed."""

from textual.binding import Binding
from textual.message import Message
from textual.widgets import Input

from vramtui.app.messages import FilterTyped, RunFilterTyped

PLACEHOLDER = "words in any column, or user:anna gpu:0 pid:123 preset:llama cmd:train"


class FilterBar(Input):
    """Filters while it is typed; Enter keeps the filter, Escape gives it up."""

    DEFAULT_CSS = """
    FilterBar { border: none; height: 1; padding: 0 1; background: $panel; }
    FilterBar:focus { border: none; }
    """
    BINDINGS = [
        Binding("escape", "give_up", "clear", id="filter.give_up", tooltip="Clear the filter"),
        Binding("enter", "keep", "keep", id="filter.keep", tooltip="Apply the filter and return to the list"),
    ]

    ROWS = "#rows"

    def __init__(self, text: str, placeholder: str = PLACEHOLDER) -> None:
        super().__init__(text, placeholder=placeholder)
        self.cursor_blink = False

    def on_mount(self) -> None:
        """Take the keys."""
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what matches so far."""
        event.stop()
        self.post_message(self.typed(self.value))

    def action_keep(self) -> None:
        """Back to the table with the filter on."""
        self._leave()

    def action_give_up(self) -> None:
        """Back to the table with all rows."""
        self.post_message(self.typed(""))
        self._leave()

    def _leave(self) -> None:
        self.screen.query_one(self.ROWS).focus()
        self.remove()

    def typed(self, text: str) -> Message:
        """What tells that the filter is `text` now."""
        return FilterTyped(text)


class RunFilterBar(FilterBar):
    """The same for the list of past runs."""

    ROWS = "#runs"

    def __init__(self, text: str) -> None:
        super().__init__(text, "filter: words in host, GPU, preset, method, command, pid or how it ended")

    def typed(self, text: str) -> Message:
        """What tells that the filter is `text` now."""
        return RunFilterTyped(text)
