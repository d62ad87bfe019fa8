"""What is typed into a field of the form, where it stands."""

from typing import Protocol

from vramtui.app.editor.form.line_edit import TypingLine
from vramtui.core.base import toml
from vramtui.presets.form.types import FormField
from vramtui.presets.toml.item_edits import value_text


class DraftWriter(Protocol):
    """Writes into the draft, and hands the new look to the form before it returns."""

    def put(self, key: str, raw: str) -> None:
        """Take `raw` for the value at `key`."""
        ...

    def take_out(self, key: str) -> None:
        """Say nothing at `key`."""
        ...

    def end_step(self) -> None:
        """The next change is an undo step of its own."""
        ...

    def add(self, key: str) -> str:
        """One more element of a list, like the one at `key`; the new one's key."""
        ...

    def shift(self, key: str, by: int) -> str:
        """Move an element of a list by one place; its key then."""
        ...


class FieldInput:
    """Types into one field at a time; each change goes to the draft at once.

    Attributes:
        typed: the line that is typed into; None while nothing is.
    """

    def __init__(self, writer: DraftWriter) -> None:
        self.writer = writer
        self.typed: TypingLine | None = None

    def press(self, key: str) -> bool:
        """Take an editing key while something is typed: Escape takes it all back. Whether it was one."""
        typed = self.typed
        if typed is None:
            return False
        if key == "escape":
            self._take_back(typed)
            return True
        before = typed.text
        if key == "ctrl+j" and typed.takes_lines:
            typed.insert("\n")
        elif not typed.press(key):
            return False
        if typed.text != before:
            self.writer.put(typed.key, typed.text)
        return True

    def _take_back(self, typed: TypingLine) -> None:
        self.typed = None
        if typed.before is None:
            self.writer.take_out(typed.key)
        else:
            self.writer.put(typed.key, typed.before)

    def insert(self, typed: TypingLine, text: str) -> None:
        """Type `text` at the cursor."""
        typed.insert(text)
        self.writer.put(typed.key, typed.text)

    def begin(self, field: FormField, text: str, *, put: bool = False) -> None:
        """Begin to type into a field with `text`, which the draft has at once where it is `put`."""
        self.writer.end_step()
        self.typed = TypingLine(field.key, text, field.value, takes_lines=field.kind == "text")
        if put:
            self.writer.put(field.key, text)

    def choose_by(self, field: FormField, letter: str) -> None:
        """The next choice that begins with a letter."""
        choices = field.choices or ("true", "false")
        now = choices.index(field.value) if field.value in choices else -1
        order = (*choices[now + 1 :], *choices[: now + 1])
        found = next((choice for choice in order if choice.startswith(letter)), None)
        if found is not None:
            self.choose(field.key, found)

    def choose(self, key: str, value: str) -> None:
        """Another value, as a step of its own."""
        self.writer.put(key, value)
        self.writer.end_step()

    def finish(self) -> None:
        """What was typed stands: Escape does not take it back any more."""
        if self.typed is not None:
            self.typed = None
            self.writer.end_step()


def on_one_line(field: FormField) -> str:
    """A value as it is typed: a list without the line ends between its elements."""
    value = field.value or ""
    if "\n" not in value or field.kind not in {"list", "table"}:
        return value
    try:
        return value_text(toml.loads(f"v = {value}")["v"])
    except ValueError:
        return value
