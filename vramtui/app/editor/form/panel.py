"""The form beside the text: a line for each field, stepped up and down, chosen or typed into where it stands."""

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from vramtui.app.editor.editor_view import EditorView
from vramtui.app.editor.form.field_input import DraftWriter, FieldInput, on_one_line
from vramtui.app.editor.form.lines import FormRows
from vramtui.app.editor.form.outline import Entry, outer_key
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines
from vramtui.core.base.text import printable
from vramtui.presets.form.types import FormField, FormGroup

# Numbers go by ones at first, then by rounder steps: from the second figure of each pair on.
STEPS = ((1, 32), (8, 256), (64, 1024), (512, 1 << 14), (4096, 1 << 17), (1 << 16, 1 << 62))
SHARE = 0.05
FORM_BINDINGS: list[BindingType] = [
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
    Binding("slash", "screen.find", "Find a field by its name", id="form.find", show=False),
    Binding("delete", "take_out", "Clear (use default); remove an element", id="form.unset", show=False),
    Binding("insert", "add", "Duplicate this element of a list", id="form.add", show=False),
    Binding("alt+up,shift+up", "shift(-1)", "Move an element of a list up", id="form.shift_up", show=False),
    Binding("alt+down,shift+down", "shift(1)", "Move an element of a list down", id="form.shift_down", show=False),
]
# A path may begin with the letter that finds a field elsewhere.
MODEL_FILE = "model.config"
ONLY_LISTS = "Elements are added to lists only: go to a list, or to one of its elements."


def stepped(field: FormField, direction: int) -> str | None:
    """The value after (1) or before (-1) the field's own, or its default's; None where there is none."""
    now = field.value if field.value is not None else field.default
    if field.kind == "bool":
        return "false" if now == "true" else "true"
    if field.kind == "choice":
        return _choice(field.choices, now, direction)
    if field.kind == "int":
        return _whole(field, now, direction)
    if field.kind == "float":
        return _share(field, now, direction)
    return None


def _choice(choices: tuple[str, ...], now: str | None, direction: int) -> str | None:
    if not choices:
        return None
    if now not in choices:
        return choices[0 if direction > 0 else -1]
    return choices[(choices.index(now) + direction) % len(choices)]


def _whole(field: FormField, now: str | None, direction: int) -> str | None:
    try:
        value = int((now or "0").replace("_", ""), 0)
    except ValueError:
        return None
    if now is None:
        return str(_least(field))
    step = next(step for step, below in STEPS if abs(value) < below or (abs(value) == below and direction < 0))
    wanted = (value // step + 1) * step if direction > 0 else (-(-value // step) - 1) * step
    lowest = _least(field)
    highest = wanted if field.maximum is None else int(field.maximum) - field.maximum_excluded
    return str(max(lowest, min(highest, wanted)))


def _least(field: FormField) -> int:
    return 0 if field.minimum is None else int(field.minimum) + field.minimum_excluded


def _share(field: FormField, now: str | None, direction: int) -> str | None:
    try:
        value = float((now or "0").replace("_", ""))
    except ValueError:
        return None
    step = SHARE if abs(value) <= 1 else 1.0
    wanted = round(value + direction * step, 6)
    least = None if field.minimum is None else float(field.minimum)
    most = None if field.maximum is None else float(field.maximum)
    if least is not None and (wanted < least or (wanted == least and field.minimum_excluded)):
        return None
    if most is not None and (wanted > most or (wanted == most and field.maximum_excluded)):
        return None
    return repr(wanted)


class FormPanel(Lines[View], can_focus=True):
    """Up and down choose a field; typing into it, or stepping it, changes the draft at once.

    Attributes:
        rows: the fields, and the cursor on one of them.
        input: what is typed into that one.
    """

    class Chosen(Message):
        """The cursor is on another entry, moved by hand."""

    class ListAsked(Message):
        """The choices of a field are to be shown."""

        def __init__(self, field: FormField) -> None:
            super().__init__()
            self.field = field

    DEFAULT_CSS = """
    FormPanel { border: round $line; border-title-color: $muted; border-subtitle-color: $muted; }
    FormPanel:focus { border: round $primary; border-title-color: $primary; }
    """
    BINDINGS = FORM_BINDINGS

    def __init__(self, writer: DraftWriter) -> None:
        super().__init__(id="form")
        self.rows = FormRows()
        self.outline = self.rows.outline
        self.input = FieldInput(writer)

    def read(self, look: EditorView, at: str | None = None) -> None:
        """Show this draft from now on; see `FormRows.read`."""
        self.rows.read(look, at)
        self.redraw()

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """The entries around the cursor, and the help on the one under it."""
        del view
        return self.rows.build(palette, width, height, self.input.typed)

    def entitle(self, title: str, subtitle: str) -> None:
        if (title, subtitle) != self._titles:
            self._entitle((title, subtitle))

    @property
    def entry(self) -> Entry | None:
        return self.outline.entry

    # --- moving --------------------------------------------------------------------------------------------------

    def show_line(self, line: int) -> None:
        """Put the cursor on what stands at `line` of the text, or before it."""
        key = self.outline.key_at_line(line)
        if key and key != self.outline.key:
            self.input.typed = None
            self.go_to(key)

    def go_to(self, key: str) -> None:
        """Put the cursor on the field called `key`."""
        self.outline.reveal(key)
        self.redraw()

    def action_move(self, by: int) -> None:
        self.input.finish()
        self.outline.at = self.rows.moved(by)
        self.redraw()
        self.post_message(self.Chosen())

    def action_table(self, direction: int) -> None:
        """The next table's title under the cursor."""
        self.action_move(self.rows.next_table(direction))

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)

    def on_click(self, event: events.Click) -> None:
        """A click chooses; one on the chosen entry opens it."""
        at = event.get_content_offset(self)
        row = self.rows.at_row(at.y, self.size.height) if at is not None else None
        if row is not None:
            self.action_open() if row == self.outline.at else self.action_move(row - self.outline.at)

    def open_entry(self, entry: Entry, *, wanted: bool) -> None:
        """Show the fields of a table or the elements of a list, or only its title."""
        self.outline.open(entry, wanted=wanted)
        self.redraw()

    # --- what is typed -------------------------------------------------------------------------------------------

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
        if self.input.press(event.key):
            self.redraw()
            _take(event)
        elif event.character == "/" and self.input.typed is None and self.outline.key != MODEL_FILE:
            _take(event)
            await self.run_action("screen.find")
        elif event.is_printable and event.character is not None:
            _take(event)
            self._type(event.character)
        elif event.key == "backspace" and (field := self.outline.typed_field) is not None:
            _take(event)
            self._begin(field, (field.value or "")[:-1], put=True)
        elif await self.app._check_bindings(event.key):  # noqa: SLF001 - there is no public way to it
            _take(event)

    def on_paste(self, event: events.Paste) -> None:
        """Type all of it, as one line."""
        event.stop()
        if self.outline.typed_field is not None:
            self._type("".join(c for c in event.text if c.isprintable()))

    def on_blur(self) -> None:
        """Whoever has the keys now, this field is done."""
        self.input.finish()
        self.redraw()

    def on_focus(self) -> None:
        self.redraw()

    def _type(self, text: str) -> None:
        entry = self.entry
        if self.input.typed is not None:
            self.input.insert(self.input.typed, text)
            self.redraw()
        elif isinstance(entry, FormGroup) or (entry is not None and entry.items and not entry.many):
            if text == " ":
                self.action_open()
        elif entry is not None and entry.kind in {"choice", "bool"}:
            self.action_step(1) if text == " " else self.input.choose_by(entry, text)
        elif entry is not None:
            self._begin(entry, text, put=True)

    def _begin(self, field: FormField, text: str, *, put: bool = False) -> None:
        if not field.settable:
            how = "open it with Right and edit its values" if field.items else "edit it in the text (F6)"
            self.notify(f"{printable(field.key)} spans several lines: {how}.", markup=False)
            return
        self.input.begin(field, text, put=put)
        self.redraw()

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
            self.input.choose(entry.key, value)
        elif value is None and direction < 0 and "[" in entry.key:
            self.go_to(outer_key(entry.key))

    def action_open(self) -> None:
        """Type into a field, list its choices, turn a yes into a no, open a table."""
        entry = self.entry
        if self.input.typed is not None:
            self.input.finish()
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
            refused = self.rows.refused(entry.key)
            self._begin(entry, on_one_line(entry) if refused is None else refused)

    def action_add(self) -> None:
        """One more element behind the one in hand, or at the end of the list in hand."""
        entry = self.outline.element
        if entry is None:
            self.notify(ONLY_LISTS, timeout=4, markup=False)
        elif entry.is_new and entry.kind not in {"table", "list"}:
            self.go_to(entry.key)
            self._begin(entry, "")
        else:
            self.input.finish()
            self.go_to(self.input.writer.add(entry.key))

    def action_shift(self, by: int) -> None:
        """Change places with the element before or behind."""
        entry = self.entry
        if isinstance(entry, FormField) and entry.key.endswith("]") and not entry.is_new:
            self.input.finish()
            there = self.input.writer.shift(entry.key, by)
            self.outline.exchange(entry.key, there)
            self.go_to(there)

    def action_take_out(self) -> None:
        """Clear the field: its default holds."""
        if self.entry is not None and self.outline.can_be_cleared:
            self.input.typed = None
            self.input.writer.take_out(self.entry.key)


def _take(event: events.Key) -> None:
    event.stop()
    event.prevent_default()
