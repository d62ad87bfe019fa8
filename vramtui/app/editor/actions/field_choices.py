"""The fields of a preset as a list, the choices of a field as another, and what another kind makes of the keys it
lacks.
"""

from collections.abc import Callable

from rich.cells import cell_len
from textual.content import Content
from textual.screen import Screen
from textual.widgets.option_list import Option

from vramtui.app.editor.dialogs import Pick, QuestionDialog, QuestionOption, confirm
from vramtui.app.editor.open_draft import OpenDraft
from vramtui.app.ui.chooser import Chooser, ranked
from vramtui.app.ui.dialog import ask
from vramtui.app.ui.lines import fit
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN
from vramtui.presets.form.types import FormField, FormGroup, fields_of

WIDTH, KEY, VALUE = 110, 36, 20
NOT_A_KEY = "is not a key of"


class FieldChooser(Chooser):
    """Dismissed with a field's key; None when none was chosen.

    Args:
        groups: the form.
    """

    DEFAULT_CSS = f"FieldChooser > #window {{ width: {WIDTH}; }}"

    def __init__(self, groups: tuple[FormGroup, ...]) -> None:
        super().__init__("Find a field")
        self._fields = [field for field in fields_of(groups).values() if not field.is_new]
        self._places = {field.key: at for at, field in enumerate(self._fields)}

    def fill(self, wanted: str) -> None:
        """List the fields that are called so, then those whose help says it; those that are set first."""
        fields = ranked(wanted, self._fields, _text, self._order)
        room = self.room(WIDTH)
        self.list_options((Option(_line(field, room), field.key) for field in fields), "no field is called so")

    def _order(self, field: FormField) -> tuple[bool, int]:
        return field.value is None, self._places[field.key]


def _text(field: FormField) -> tuple[str, str]:
    # `lora rank` and `run.lora.rank` find the same.
    return field.key.replace(".", " ").replace("_", " "), f"{field.key} {field.help}"


def _line(field: FormField, room: int) -> Content:
    """One field: its key, its value (dim where that is the default) and its help."""
    value = field.value if field.value is not None else field.default
    shown = printable((UNKNOWN if value is None else value).replace("\n", " "))
    help_width = max(0, room - max(KEY, cell_len(field.key) + 1) - VALUE - 1)
    return Content.assemble(
        (f"{printable(field.key):<{KEY - 1}} ", "bold"),
        (f"{fit(shown, VALUE)} ", "" if field.value is not None else "$muted"),
        (fit(printable(field.help), help_width), "$muted"),
    )


class FieldChoices:
    """Asks for one of a field's values.

    Args:
        screen: asks.
        open_draft: takes the answer.
    """

    def __init__(self, screen: Screen[None], open_draft: OpenDraft) -> None:
        self._screen = screen
        self._open = open_draft

    def ask(self, field: FormField) -> None:
        """Show the choices of a field."""
        helps = field.choice_helps or ("",) * len(field.choices)
        lines = [
            (choice, "default" if not helps[at] and choice == field.default else helps[at])
            for at, choice in enumerate(field.choices)
        ]
        now = field.value if field.value is not None else field.default

        first = field.choices.index(now) if now in field.choices else 0
        ask(self._screen.app, Pick(field.key, lines, first), lambda at: self._choose(field, field.choices[at]))

    def find(self, go_to: Callable[[str], None]) -> None:
        """List all fields, those that are not set among them, and go to the chosen one."""
        ask(self._screen.app, FieldChooser(self._open.draft.form), go_to)

    def _choose(self, field: FormField, choice: str) -> None:
        self._open.put(field.key, choice)
        self._open.end_step()
        if field.key.endswith(".kind"):
            self._ask_about_unknown(choice)

    def _ask_about_unknown(self, kind: str) -> None:
        """After another kind was chosen: whether the keys that it does not have are taken out."""
        keys = [problem.key for problem in self._open.draft.problems if NOT_A_KEY in problem.sentence]
        if not keys:
            return

        def drop() -> None:
            self._open.draft.edits.drop_unknown()
            self._open.refresh()

        question = f"Of {kind}, these are not keys of that kind: {', '.join(keys)}. Ctrl+Z restores them."
        dialog = QuestionDialog("Another kind", question, (QuestionOption("y", "remove them"),))
        confirm(self._screen.app, dialog, drop)
