"""The line in which a list's filter is typed."""

from collections.abc import Callable

from textual.binding import Binding
from textual.widgets import Input


class FilterBar(Input):
    """Filters while it is typed; Enter keeps the filter, Escape gives it up.

    Args:
        text: the filter as it is.
        placeholder: what stands there while nothing is typed.
        rows: selects the list that has the keys afterwards.
        typed: takes the filter whenever it is another.
    """

    DEFAULT_CSS = """
    FilterBar { border: none; height: 1; padding: 0 1; background: $panel; }
    FilterBar:focus { border: none; }
    """
    BINDINGS = [
        Binding("escape", "give_up", "clear", id="filter.give_up", tooltip="Clear the filter"),
        Binding("enter", "keep", "keep", id="filter.keep", tooltip="Apply the filter and return to the list"),
    ]

    def __init__(self, text: str, *, placeholder: str, rows: str, typed: Callable[[str], None]) -> None:
        super().__init__(text, placeholder=placeholder)
        self.cursor_blink = False
        self._rows = rows
        self._typed = typed

    def on_mount(self) -> None:
        """Take the keys."""
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what matches so far."""
        event.stop()
        self._typed(self.value)

    def action_keep(self) -> None:
        """Back to the list with the filter on."""
        self.screen.query_one(self._rows).focus()
        self.remove()

    def action_give_up(self) -> None:
        """Back to the list with all rows."""
        self._typed("")
        self.action_keep()
