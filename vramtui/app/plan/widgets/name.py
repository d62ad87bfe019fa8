"""The window in which a variant is given a name as a preset."""

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, Static

from vramtui.app.ui.dialog import Window
from vramtui.core.base.errors import UserError
from vramtui.presets.draft.creation import checked_name


class PlanName(Window[str]):
    """Dismissed with a name that a file may have.

    Args:
        name: what is proposed.
        about: what will be saved, and where.
    """

    DEFAULT_CSS = """
    PlanName Input { border: none; height: 1; padding: 0; background: $panel; margin: 1 0; }
    PlanName Input:focus { border: none; }
    PlanName #fault { color: $error; height: auto; }
    """

    def __init__(self, name: str, about: str) -> None:
        super().__init__("Save this variant as a preset", "Enter save · Esc cancel")
        self._name_proposed, self._about = name, about

    def inside(self) -> ComposeResult:
        """What it is, and its name."""
        yield Static(Content(self._about))
        line = Input(self._name_proposed, placeholder="name of the preset")
        line.cursor_blink = False
        yield line
        yield Static("", id="fault", markup=False)

    def on_mount(self) -> None:
        """Type at once."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close, or say what is wrong with the name."""
        event.stop()
        try:
            self.dismiss(checked_name(event.value.strip()))
        except UserError as error:
            self.query_one("#fault", Static).update(str(error))
