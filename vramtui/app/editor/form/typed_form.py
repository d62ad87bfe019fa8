"""What is typed into the form, where it stands."""

from typing import Protocol

from textual import events

from vramtui.app.editor.form.line_edit import TypingLine
from vramtui.app.editor.form.rows import FormRows
from vramtui.core.base.text import printable
from vramtui.presets.form.types import FormField, FormGroup
from vramtui.presets.toml import reader as toml
from vramtui.presets.toml.item_edits import written


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


class TypedForm(FormRows, can_focus=True):
    """Letters begin to type into the field in hand; each changes the draft at once."""

    def __init__(self, pen: DraftWriter) -> None:
        super().__init__()
        self._pen = pen

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Whatever can be typed is typed into the field: it is no key of the app here."""
        del key
        return character is not None and character.isprintable()

    async def on_key(self, event: events.Key) -> None:
        """Editing keys while something is typed; letters begin to type; then every other key, in their order.

        Textual runs a binding when its key has gone all the way up to the app. A letter that comes right behind it, as
        over a slow connection, would by then be typed into the very field that the key was to leave.
        """
        if self.screen.focused is not self:
            return
        if self._typed is not None and self._typing_key(self._typed, event.key):
            _take(event)
        elif event.is_printable and event.character is not None:
            _take(event)
            self._type(event.character)
        elif (
            event.key == "backspace" and isinstance(self.entry, FormField) and self.entry.kind not in {"choice", "bool"}
        ):
            _take(event)
            self._begin(self.entry, (self.entry.value or "")[:-1], put=True)
        elif await self.app._check_bindings(event.key):  # noqa: SLF001 - there is no public way to it
            _take(event)

    def on_paste(self, event: events.Paste) -> None:
        """Type all of it, as one line."""
        event.stop()
        if isinstance(self.entry, FormField) and self.entry.kind not in {"choice", "bool"}:
            self._type("".join(c for c in event.text if c.isprintable()))

    def on_blur(self) -> None:
        """Whoever has the keys now, this field is done."""
        self.finish()
        self.redraw()

    def on_focus(self) -> None:
        """Show the cursor."""
        self.redraw()

    def _typing_key(self, typed: TypingLine, key: str) -> bool:
        if key == "escape":
            self._typed = None
            if typed.before is None:
                self._pen.take_out(typed.key)
            else:
                self._pen.put(typed.key, typed.before)
            return True
        before = typed.text
        if key == "ctrl+j" and typed.takes_lines:
            typed.insert("\n")
        elif not typed.press(key):
            return False
        if typed.text != before:
            self._pen.put(typed.key, typed.text)
        self.redraw()
        return True

    def _type(self, text: str) -> None:
        entry = self.entry
        if self._typed is not None:
            self._typed.insert(text)
            self._pen.put(self._typed.key, self._typed.text)
            self.redraw()
        elif isinstance(entry, FormGroup) or (entry is not None and entry.items and not entry.many):
            if text == " ":
                self.action_open()
        elif isinstance(entry, FormField) and entry.kind in {"choice", "bool"}:
            self._choose_by(entry, text)
        elif isinstance(entry, FormField):
            self._begin(entry, text, put=True)

    def _choose_by(self, field: FormField, text: str) -> None:
        """Space: the next one; a letter: the next one that begins with it."""
        if text == " ":
            self.action_step(1)
            return
        choices = field.choices or ("true", "false")
        now = choices.index(field.value) if field.value in choices else -1
        order = (*choices[now + 1 :], *choices[: now + 1])
        found = next((choice for choice in order if choice.startswith(text)), None)
        if found is not None:
            self._pen.put(field.key, found)
            self._pen.end_step()

    def _begin(self, field: FormField, text: str, *, put: bool = False) -> None:
        if not field.settable:
            how = "open it with → and edit its values" if field.items else "edit it in the text (F6)"
            self.notify(f"{printable(field.key)} spans several lines: {how}.", markup=False)
            return
        self._pen.end_step()
        self._typed = TypingLine(field.key, text, field.value, takes_lines=field.kind == "text")
        if put:
            self._pen.put(field.key, text)
        self.redraw()

    def finish(self) -> None:
        """What was typed stands: Escape does not take it back any more."""
        if self._typed is not None:
            self._typed = None
            self._pen.end_step()

    def action_step(self, direction: int) -> None:
        """The value before or after."""
        raise NotImplementedError


def on_one_line(field: FormField) -> str:
    """A value as it is typed: a list without the line ends between its elements."""
    value = field.value or ""
    if "\n" not in value or field.kind not in {"list", "table"}:
        return value
    try:
        return written(toml.loads(f"v = {value}")["v"])
    except ValueError:
        return value


def _take(event: events.Key) -> None:
    event.stop()
    event.prevent_default()
