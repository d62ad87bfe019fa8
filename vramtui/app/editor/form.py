"""The form beside the text: a line for each field, stepped, chosen or typed into where it stands."""

from typing import Protocol

from textual import events
from textual.binding import Binding
from textual.message import Message

from vramtui.app.editor.rows import FormRows
from vramtui.app.editor.stepping import stepped
from vramtui.app.editor.typing_line import TypingLine
from vramtui.core.text import printable
from vramtui.presets.forms import Field, Group


class Pen(Protocol):
    """Writes into the draft, and hands the new look to the form before it returns."""

    def put(self, key: str, raw: str) -> None:
        """Take `raw` for the value at `key`."""
        ...

    def take_out(self, key: str) -> None:
        """Say nothing at `key`."""
        ...

    def end_step(self) -> None:
        """What comes next is undone by itself."""
        ...


class FormPanel(FormRows, can_focus=True):
    """Up and down choose a field; typing into it, or stepping it, changes the draft at once."""

    class ListAsked(Message):
        """The choices of a field are to be shown."""

        def __init__(self, field: Field) -> None:
            super().__init__()
            self.field = field

    DEFAULT_CSS = """
    FormPanel { border: round $line; border-title-color: $muted; border-subtitle-color: $muted; }
    FormPanel:focus { border: round $primary; border-title-color: $primary; }
    """
    BINDINGS = [
        Binding("up", "move(-1)", "Field before", id="form.before", show=False),
        Binding("down", "move(1)", "Field after", id="form.after", show=False),
        Binding("pageup", "move(-10)", "Ten fields before", id="form.page_before", show=False),
        Binding("pagedown", "move(10)", "Ten fields after", id="form.page_after", show=False),
        Binding("ctrl+up", "table(-1)", "The table before", id="form.table_before", show=False),
        Binding("ctrl+down", "table(1)", "The next table", id="form.table_after", show=False),
        Binding("home", "move(-999)", "The first field", id="form.first", show=False),
        Binding("end", "move(999)", "The last field", id="form.last", show=False),
        Binding("left", "step(-1)", "The value before; close a table", id="form.less", show=False),
        Binding("right", "step(1)", "The value after; open a table", id="form.more", show=False),
        Binding("enter", "open", "Type into a field, list its choices, open a table", id="form.open", show=False),
        Binding("delete", "take_out", "Leave the field unsaid: its default holds", id="form.unset", show=False),
    ]

    def __init__(self, pen: Pen) -> None:
        super().__init__()
        self._pen = pen

    # --- changing ------------------------------------------------------------------------------------------------

    def action_step(self, direction: int) -> None:
        """The value before or after; a table opens and closes."""
        entry = self.entry
        if isinstance(entry, Group):
            self.open_group(entry, wanted=direction > 0)
        elif isinstance(entry, Field):
            value = stepped(entry, direction)
            if value is not None and value != entry.value:
                self._pen.put(entry.key, value)
                self._pen.end_step()

    def action_open(self) -> None:
        """Type into a field, list its choices, turn a yes into a no, open a table."""
        entry = self.entry
        if self._typed is not None:
            self.finish()
            self.redraw()
        elif isinstance(entry, Group):
            self.open_group(entry, wanted=not self._is_open(entry))
        elif isinstance(entry, Field) and entry.kind == "choice":
            self.post_message(self.ListAsked(entry))
        elif isinstance(entry, Field) and entry.kind == "bool":
            self.action_step(1)
        elif isinstance(entry, Field):
            self._begin(entry, entry.value or "")

    def action_take_out(self) -> None:
        """Leave it unsaid."""
        entry = self.entry
        if entry is None or not entry.key or (isinstance(entry, Group) and entry.required):
            return
        self._typed = None
        self._pen.take_out(entry.key)

    # --- typing --------------------------------------------------------------------------------------------------

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Whatever can be typed is typed into the field: it is no key of the app here."""
        del key
        return character is not None and character.isprintable()

    def on_key(self, event: events.Key) -> None:
        """Editing keys while something is typed; letters begin to type."""
        if self._typed is not None and self._typing_key(self._typed, event.key):
            _take(event)
        elif event.is_printable and event.character is not None:
            _take(event)
            self._type(event.character)
        elif event.key == "backspace" and isinstance(self.entry, Field) and self.entry.kind not in {"choice", "bool"}:
            _take(event)
            self._begin(self.entry, (self.entry.value or "")[:-1], put=True)

    def on_paste(self, event: events.Paste) -> None:
        """Type all of it, as one line."""
        event.stop()
        if isinstance(self.entry, Field) and self.entry.kind not in {"choice", "bool"}:
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
        if not typed.press(key):
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
        elif isinstance(entry, Group):
            if text == " ":
                self.action_open()
        elif isinstance(entry, Field) and entry.kind in {"choice", "bool"}:
            self._choose_by(entry, text)
        elif isinstance(entry, Field):
            self._begin(entry, text, put=True)

    def _choose_by(self, field: Field, text: str) -> None:
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

    def _begin(self, field: Field, text: str, *, put: bool = False) -> None:
        if not field.settable or "\n" in text:
            self.notify(f"{printable(field.key)} goes over several lines: change it in the text (F6).", markup=False)
            return
        self._pen.end_step()
        self._typed = TypingLine(field.key, text, field.value)
        if put:
            self._pen.put(field.key, text)
        self.redraw()

    def finish(self) -> None:
        """What was typed stands: Escape does not take it back any more."""
        if self._typed is not None:
            self._typed = None
            self._pen.end_step()


def _take(event: events.Key) -> None:
    event.stop()
    event.prevent_default()
