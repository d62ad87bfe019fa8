"""The window that asks for the signal to send to a process."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from vramtui.app.ui.dialog import Window
from vramtui.core.observation.signals import MEANINGS, SIGNALS, SignalName


class SignalWindow(Window[SignalName]):
    """Answers with a signal only to `y`, not to Enter, which may follow a wrong key. Texts are never markup."""

    BINDINGS = [
        Binding("y", "yes", "Yes", id="signal.yes", show=False, tooltip="Send the signal"),
        Binding("n", "close", "No", id="signal.no", show=False, tooltip="Cancel"),
        Binding("t", "pick(0)", "SIGTERM", id="signal.term", show=False, tooltip="Select SIGTERM"),
        Binding("i", "pick(1)", "SIGINT", id="signal.int", show=False, tooltip="Select SIGINT"),
        Binding("9", "pick(2)", "SIGKILL", id="signal.kill", show=False, tooltip="Select SIGKILL"),
    ]

    def __init__(self, title: str, question: str, warning: str = "") -> None:
        super().__init__(title, "y send · n or Esc cancel")
        self._question, self._warning = question, warning

    def inside(self) -> ComposeResult:
        yield Static(Content(self._question))
        if self._warning:
            yield Static(Content(self._warning), id="warning")
        keys = ("t", "i", "9")
        options = [
            Option(Content.assemble(f"{key}  ", (f"{name:<8}", "bold"), MEANINGS[name]), id=name)
            for key, name in zip(keys, SIGNALS, strict=True)
        ]
        yield OptionList(*options)
        yield Static(id="asked")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self.action_pick(0)

    def action_pick(self, place: int) -> None:
        self.query_one(OptionList).highlighted = place

    def on_option_list_option_highlighted(self) -> None:
        self.query_one("#asked", Static).update(Content(f"Send {self._selected_name}?"))

    def action_yes(self) -> None:
        self.dismiss(self._selected_name)

    @property
    def _selected_name(self) -> SignalName:
        return SIGNALS[self.query_one(OptionList).highlighted or 0]
