"""The line in which a list's filter is typed."""

from collections.abc import Callable

from textual.binding import Binding
from textual.widgets import Input


class FilterBar(Input):
    """Filters while it is typed; Enter keeps the filter, Escape clears it. `rows` selects the list to focus then."""

    BINDINGS = [
        Binding("escape", "give_up", "clear", id="filter.give_up", tooltip="Clear the filter"),
        Binding("enter", "keep", "keep", id="filter.keep", tooltip="Apply the filter and return to the list"),
    ]

    def __init__(self, text: str, *, placeholder: str, rows: str, typed: Callable[[str], None]) -> None:
        super().__init__(text, placeholder=placeholder)
        self.cursor_blink = False
        self._rows, self._typed = rows, typed

    def on_mount(self) -> None:
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._typed(self.value)

    def action_keep(self) -> None:
        self.screen.query_one(self._rows).focus()
        self.remove()

    def action_give_up(self) -> None:
        self._typed("")
        self.action_keep()
