"""The form beside the text: a line for each field, stepped, chosen or typed into where it stands."""

from textual.binding import Binding
from textual.message import Message

from vramtui.app.editor.form.stepper import stepped
from vramtui.app.editor.form.typed_form import TypedForm, on_one_line
from vramtui.presets.form.types import FormField, FormGroup


class FormPanel(TypedForm, can_focus=True):
    """Up and down choose a field; typing into it, or stepping it, changes the draft at once."""

    class ListAsked(Message):
        """The choices of a field are to be shown."""

        def __init__(self, field: FormField) -> None:
            super().__init__()
            self.field = field

    DEFAULT_CSS = """
    FormPanel { border: round $line; border-title-color: $muted; border-subtitle-color: $muted; }
    FormPanel:focus { border: round $primary; border-title-color: $primary; }
    """
    BINDINGS = [
        Binding("up", "move(-1)", "Previous field", id="form.before", show=False),
        Binding("down", "move(1)", "Next field", id="form.after", show=False),
        Binding("pageup", "move(-10)", "Up ten fields", id="form.page_before", show=False),
        Binding("pagedown", "move(10)", "Down ten fields", id="form.page_after", show=False),
        Binding("ctrl+up", "table(-1)", "Previous table", id="form.table_before", show=False),
        Binding("ctrl+down", "table(1)", "Next table", id="form.table_after", show=False),
        Binding("home", "move(-999)", "First field", id="form.first", show=False),
        Binding("end", "move(999)", "Last field", id="form.last", show=False),
        Binding("left", "step(-1)", "Previous value; close a table or list", id="form.less", show=False),
        Binding("right", "step(1)", "Next value; open a table or list", id="form.more", show=False),
        Binding("enter", "open", "Edit a field, list its choices, open a table", id="form.open", show=False),
        Binding("delete", "take_out", "Clear (use default); remove an element", id="form.unset", show=False),
        Binding("insert", "add", "Duplicate this element of a list", id="form.add", show=False),
        Binding("alt+up,shift+up", "shift(-1)", "Move an element of a list up", id="form.shift_up", show=False),
        Binding("alt+down,shift+down", "shift(1)", "Move an element of a list down", id="form.shift_down", show=False),
    ]

    # --- changing ------------------------------------------------------------------------------------------------

    def action_step(self, direction: int) -> None:
        """The value before or after; a table or list opens and closes, and what is in it leads back to it."""
        entry = self.entry
        if entry is None:
            return
        if isinstance(entry, FormGroup) or (entry.items and (direction > 0 or self.outline.is_open(entry))):
            self.open_entry(entry, wanted=direction > 0)
            return
        value = stepped(entry, direction) if not entry.is_new else None
        if value is not None and value != entry.value:
            self._pen.put(entry.key, value)
            self._pen.end_step()
        elif value is None and direction < 0 and "[" in entry.key:
            self.go_to(outer_key(entry.key))

    def action_open(self) -> None:
        """Type into a field, list its choices, turn a yes into a no, open a table."""
        entry = self.entry
        if self._typed is not None:
            self.finish()
            self.redraw()
        elif isinstance(entry, FormGroup):
            self.open_entry(entry, wanted=not self.outline.is_open(entry))
        elif entry is not None and entry.kind == "choice":
            self.post_message(self.ListAsked(entry))
        elif entry is not None and entry.kind == "bool":
            self.action_step(1)
        elif entry is not None and entry.is_new and entry.kind in {"table", "list"}:
            self.action_add()
        elif entry is not None and entry.items and not (entry.many and entry.settable):
            self.open_entry(entry, wanted=not self.outline.is_open(entry))
        elif entry is not None:
            refused = self.refused(entry.key)
            self._begin(entry, on_one_line(entry) if refused is None else refused)

    def action_add(self) -> None:
        """One more element behind the one in hand, or at the end of the list in hand."""
        entry = self.entry
        if not isinstance(entry, FormField):
            return
        if entry.many and not entry.is_new:
            entry = entry.items[-1]
        if "]" not in entry.key[-1:]:
            self.notify(
                "Elements are added to lists only: go to a list, or to one of its elements.", timeout=4, markup=False
            )
        elif entry.is_new and entry.kind not in {"table", "list"}:
            self.go_to(entry.key)
            self._begin(entry, "")
        else:
            self.finish()
            self.go_to(self._pen.add(entry.key))

    def action_shift(self, by: int) -> None:
        """Change places with the element before or behind."""
        entry = self.entry
        if isinstance(entry, FormField) and entry.key.endswith("]") and not entry.is_new:
            self.finish()
            there = self._pen.shift(entry.key, by)
            self.outline.exchange(entry.key, there)
            self.go_to(there)

    def action_take_out(self) -> None:
        """Clear the field: its default holds."""
        entry = self.entry
        if entry is None or not entry.key or (isinstance(entry, FormGroup) and entry.required):
            return
        if isinstance(entry, FormField) and entry.is_new:
            return
        self._typed = None
        self._pen.take_out(entry.key)


def outer_key(key: str) -> str:
    """The key of what an element, or a key of one, is in."""
    return key.rpartition("." if "." in key.rpartition("]")[2] else "[")[0]
