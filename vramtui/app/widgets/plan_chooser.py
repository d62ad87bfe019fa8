"""A short list with a filter: an axis, a card, or a preset to set beside."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from vramtui.app.screens.windows import Window

Choice = tuple[str, str, str]


class PlanChooser(Window[str]):
    """Dismissed with what was chosen; None when nothing was.

    Args:
        title: what is asked.
        choices: of each what it is called here, its name in bold and what is said about it.
        present: the one that is chosen now.
    """

    DEFAULT_CSS = """
    PlanChooser > #window { width: 84; }
    PlanChooser Input { border: none; height: 1; padding: 0; background: $panel; margin: 0 0 1 0; }
    PlanChooser Input:focus { border: none; }
    PlanChooser OptionList { border: none; height: auto; max-height: 20; padding: 0; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis; overflow-x: hidden;
    }
    PlanChooser OptionList:focus { border: none; }
    """
    BINDINGS = [
        Binding("up", "move(-1)", "Up", id="choice.up", show=False),
        Binding("down", "move(1)", "Down", id="choice.down", show=False),
        Binding("enter", "choose", "Choose", id="choice.choose", show=False, priority=True),
        Binding("escape", "close", "Close", id="choice.close", show=False, priority=True),
    ]

    def __init__(self, title: str, choices: Sequence[Choice], present: str) -> None:
        super().__init__(title, "type to filter · Enter chooses · Esc closes")
        self._choices, self._present = choices, present

    def inside(self) -> ComposeResult:
        """The filter over the list."""
        filter_line = Input(placeholder="filter")
        filter_line.cursor_blink = False
        yield filter_line
        yield OptionList(markup=False)

    def on_mount(self) -> None:
        """Everything is listed at first."""
        self._list("")
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """List what holds every word."""
        event.stop()
        self._list(event.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click."""
        self.dismiss(event.option.id)

    def action_move(self, direction: int) -> None:
        """The list moves while the filter keeps the keys."""
        options = self.query_one(OptionList)
        (options.action_cursor_down if direction > 0 else options.action_cursor_up)()

    def action_choose(self) -> None:
        """Choose what the cursor is on."""
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self.dismiss(options.get_option_at_index(options.highlighted).id)

    def _list(self, wanted: str) -> None:
        words = wanted.lower().split()
        found = [one for one in self._choices if all(word in f"{one[1]} {one[2]}".lower() for word in words)]
        width = max((len(name) for _, name, _ in self._choices), default=0) + 2
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(
            Option(Content.assemble((f"{name:<{width}}", "bold"), (about, "$muted")), identity)
            for identity, name, about in found
        )
        if not found:
            options.add_option(Option(Content("nothing holds that"), disabled=True))
        names = [identity for identity, _, _ in found]
        options.highlighted = names.index(self._present) if self._present in names else 0
