"""The command palette: every action by its name, one a line, its key at the right."""

from collections.abc import Sequence

from rich.cells import cell_len
from textual.app import SystemCommand
from textual.content import Content
from textual.widgets.option_list import Option

from vramtui.app.choosers.chooser import Chooser
from vramtui.app.choosers.fuzzy_rank import ranked

WIDTH = 76


class ActionChooser(Chooser):
    """Dismissed with the number of the action that was chosen; None when none was.

    Args:
        actions: each with its title, its key as `help`, and what it does.
    """

    DEFAULT_CSS = f"ActionChooser > #window {{ width: {WIDTH}; }}"

    def __init__(self, actions: Sequence[SystemCommand]) -> None:
        super().__init__("Actions")
        self._actions = dict(enumerate(actions))

    def fill(self, wanted: str) -> None:
        """List what is called so, in the order of the help where several are."""
        found = ranked(wanted, self._actions.items(), lambda one: (one[1].title, one[1].help), lambda one: one[0])
        room = self.room(WIDTH)
        self.list_options((Option(_line(action, room), str(at)) for at, action in found), "no action is called so")


def _line(action: SystemCommand, room: int) -> Content:
    pad = max(1, room - cell_len(action.title) - cell_len(action.help))
    return Content.assemble(action.title, " " * pad, (action.help, "bold $primary"))
