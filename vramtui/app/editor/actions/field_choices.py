"""The choices of a field as a list, and what another kind makes of the keys that it does not have."""

from collections.abc import Callable

from textual.screen import Screen

from vramtui.app.editor.dialogs import Pick, QuestionDialog, QuestionOption
from vramtui.app.editor.field_chooser import FieldChooser
from vramtui.app.editor.open_draft import OpenDraft
from vramtui.presets.form.types import FormField

UNKNOWN = "is not a key of"


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

        def chosen(at: int | None) -> None:
            if at is not None:
                self._choose(field, field.choices[at])

        first = field.choices.index(now) if now in field.choices else 0
        self._screen.app.push_screen(Pick(field.key, lines, first), chosen)

    def find(self, go_to: Callable[[str], None]) -> None:
        """List all fields, those that are not set among them, and go to the chosen one."""

        def chosen(key: str | None) -> None:
            if key is not None:
                go_to(key)

        self._screen.app.push_screen(FieldChooser(self._open.draft.form), chosen)

    def _choose(self, field: FormField, choice: str) -> None:
        self._open.put(field.key, choice)
        self._open.end_step()
        if field.key.endswith(".kind"):
            self._ask_about_unknown(choice)

    def _ask_about_unknown(self, kind: str) -> None:
        """After another kind was chosen: whether the keys that it does not have are taken out."""
        keys = [problem.key for problem in self._open.draft.problems if UNKNOWN in problem.sentence]
        if not keys:
            return

        def answered(key: str | None) -> None:
            if key == "y":
                self._open.draft.edits.drop_unknown()
                self._open.refresh()

        question = f"Of {kind}, these are not keys of that kind: {', '.join(keys)}. Ctrl+Z restores them."
        self._screen.app.push_screen(
            QuestionDialog("Another kind", question, (QuestionOption("y", "remove them"),)), answered
        )
