"""The line in which the process table's filter is typed."""

from textual.binding import Binding
from textual.widgets import Input

from vramtui.app.messages import FilterTyped


class FilterBar(Input):
    """Filters while it is typed; Enter keeps the filter, Escape gives it up."""

    DEFAULT_CSS = """
    FilterBar { border: none; height: 1; padding: 0 1; background: $panel; }
    FilterBar:focus { border: none; }
    """
    BINDINGS = [
        Binding("escape", "give_up", "show all", id="filter.give_up", tooltip="Show all rows again"),
        Binding("enter", "keep", "keep", id="filter.keep", tooltip="Keep the filter and give the keys back"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__(
            text,
            placeholder="filter: words in pid, user, command or preset, or gpu:0",
        )
        self.cursor_blink = False

    def on_mount(self) -> None:
        """Take the keys."""
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what matches so far."""
        event.stop()
        self.post_message(FilterTyped(self.value))

    def action_keep(self) -> None:
        """Back to the table with the filter on."""
        self._leave()

    def action_give_up(self) -> None:
        """Back to the table with all rows."""
        self.post_message(FilterTyped(""))
        self._leave()

    def _leave(self) -> None:
        self.screen.query_one("#rows").focus()
        self.remove()
