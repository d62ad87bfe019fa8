"""A list with a line above it in which words are typed that narrow it down."""

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from vramtui.app.ui.check_list import ChoiceList
from vramtui.app.ui.dialog import Window


class Chooser(Window[str]):
    """Dismissed with the id of what was chosen; None when nothing was. Who derives from it fills the list."""

    DEFAULT_CSS = """
    Chooser Input { border: none; height: 1; padding: 0; background: $panel; margin: 0 0 1 0; }
    Chooser Input:focus { border: none; }
    Chooser OptionList { border: none; height: auto; max-height: 24; padding: 0; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis; overflow-x: hidden;
    }
    Chooser OptionList:focus { border: none; }
    """
    BINDINGS = [
        Binding("up", "move(-1)", "Up", id="chooser.up", show=False),
        Binding("down", "move(1)", "Down", id="chooser.down", show=False),
        Binding("enter", "choose", "Choose", id="chooser.choose", show=False, priority=True),
        Binding("escape", "close", "Close", id="chooser.close", show=False, priority=True),
    ]

    def __init__(self, title: str) -> None:
        super().__init__(title, "type to filter · Enter select · Esc close")

    def fill(self, wanted: str) -> None:
        """List what holds every word of `wanted`."""
        raise NotImplementedError

    def list_options(self, options: Iterable[Option], none: str, at: str | None = None) -> None:
        """List these, with the cursor on the one whose id is `at`, or else on the first that can be chosen; `none` says
        that there are none.
        """
        shown = self.query_one(OptionList)
        shown.clear_options()
        shown.add_options(options)
        if not shown.option_count:
            shown.add_option(Option(Content(none), disabled=True))
        places = [place for place, option in enumerate(shown.options) if not option.disabled]
        wanted = (place for place in places if at is not None and shown.options[place].id == at)
        shown.highlighted = next(wanted, places[0] if places else 0)

    def inside(self) -> ComposeResult:
        """The filter over the list."""
        filter_line = Input(placeholder="filter")
        filter_line.cursor_blink = False
        yield filter_line
        yield ChoiceList(markup=False)

    def on_mount(self) -> None:
        """Everything is listed at first."""
        self.fill("")
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """List what holds every word."""
        event.stop()
        self.fill(event.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click."""
        self.take(event.option.id)

    def action_move(self, direction: int) -> None:
        """The list moves while the filter keeps the keys."""
        options = self.query_one(OptionList)
        (options.action_cursor_down if direction > 0 else options.action_cursor_up)()

    def action_choose(self) -> None:
        """Choose what the cursor is on."""
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self.take(options.get_option_at_index(options.highlighted).id)

    def take(self, chosen: str | None) -> None:
        """Close with what was chosen."""
        self.dismiss(chosen)
