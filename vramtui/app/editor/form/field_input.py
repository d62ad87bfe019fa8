"""What is typed into a field of the form, where it stands, a line with a cursor."""

from typing import Protocol

from vramtui.core.base import toml
from vramtui.presets.form.types import FormField
from vramtui.presets.toml.item_edits import value_text


class TypingLine:
    """One line of text with a caret.

    Args:
        key: of the field.
        text: to begin with.
        before: what the field said then; None where it was unsaid.
        takes_lines: whether a line end can be typed into it.
    """

    def __init__(self, key: str, text: str, before: str | None, *, takes_lines: bool = False) -> None:
        self.key = key
        self.text = text
        self.before = before
        self.takes_lines = takes_lines
        self.caret = len(text)

    def insert(self, text: str) -> None:
        """Put `text` where the caret is."""
        self.text = self.text[: self.caret] + text + self.text[self.caret :]
        self.caret += len(text)

    def press(self, key: str) -> bool:
        """What an editing key does; False for any other key."""
        moves = {"left": self.caret - 1, "right": self.caret + 1, "home": 0, "end": len(self.text)}
        if key in moves:
            self.caret = max(0, min(len(self.text), moves[key]))
            return True
        cuts = {
            "backspace": (max(0, self.caret - 1), self.caret),
            "delete": (self.caret, self.caret + 1),
            "ctrl+u": (0, self.caret),
            "ctrl+k": (self.caret, len(self.text)),
            "ctrl+w": (self._word_before(), self.caret),
        }
        if key not in cuts:
            return False
        start, stop = cuts[key]
        self.text = self.text[:start] + self.text[stop:]
        self.caret = start
        return True

    def _word_before(self) -> int:
        return self.text[: self.caret].rstrip().rfind(" ") + 1


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
        match = next((choice for choice in order if choice.startswith(letter)), None)
        if match is not None:
            self.choose(field.key, match)

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
