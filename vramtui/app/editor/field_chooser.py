"""Lists of the editor: all fields by name, the choices of a field, and the keys that another kind does not have."""

from rich.cells import cell_len
from textual.content import Content
from textual.screen import Screen
from textual.widgets.option_list import Option

from vramtui.app.editor.dialogs import QuestionDialog, QuestionOption, confirm
from vramtui.app.editor.open_draft import OpenDraft
from vramtui.app.ui.chooser import Chooser, ranked
from vramtui.app.ui.lines import fit
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN
from vramtui.presets.form.types import FormField, FormGroup, fields_of

WIDTH, KEY, VALUE = 110, 36, 20


class FieldChooser(Chooser):
    """Dismissed with the key of the chosen field; None if none was chosen.

    Args:
        groups: the form.
    """

    DEFAULT_CSS = f"FieldChooser > #window {{ width: {WIDTH}; }}"

    def __init__(self, groups: tuple[FormGroup, ...]) -> None:
        super().__init__("Find a field")
        self._fields = list(fields_of(groups).values())
        self._places = {field.key: at for at, field in enumerate(self._fields)}

    def fill(self, wanted: str) -> None:
        """List the fields with these words in their names, then in their help; fields that are set come first."""
        fields = ranked(
            wanted,
            self._fields,
            # `lora rank` and `run.lora.rank` find the same.
            lambda field: (field.key.replace(".", " ").replace("_", " "), f"{field.key} {field.help}"),
            lambda field: (field.value is None, self._places[field.key]),
        )
        room = self.room(WIDTH)
        self.list_options((Option(_line(field, room), field.key) for field in fields), "no field has this name")


def _line(field: FormField, room: int) -> Content:
    """Return the line of a field: its key, its value (dim if it is the default) and its help."""
    value = field.value if field.value is not None else field.default
    shown = printable((UNKNOWN if value is None else value).replace("\n", " "))
    help_width = max(0, room - max(KEY, cell_len(field.key) + 1) - VALUE - 1)
    return Content.assemble(
        (f"{printable(field.key):<{KEY - 1}} ", "bold"),
        (f"{fit(shown, VALUE)} ", "" if field.value is not None else "$muted"),
        (fit(printable(field.help), help_width), "$muted"),
    )


def choice_lines(field: FormField) -> list[tuple[str, str]]:
    """Return the choices of a field, each with its help."""
    helps = field.choice_helps or ("",) * len(field.choices)
    return [
        (choice, about or ("default" if choice == field.default else ""))
        for choice, about in zip(field.choices, helps, strict=True)
    ]


def ask_about_unknown(screen: Screen[None], opened: OpenDraft, kind: str) -> None:
    """After another kind was chosen, ask whether to remove the keys that it does not have."""
    keys = [problem.key for problem in opened.draft.problems if "is not a key of" in problem.sentence]
    if not keys:
        return

    def drop() -> None:
        opened.draft.drop_unknown()
        opened.refresh()

    question = f"These are not keys of {kind}: {', '.join(keys)}. Ctrl+Z restores them."
    confirm(screen.app, QuestionDialog("Another kind", question, (QuestionOption("y", "remove them"),)), drop)
