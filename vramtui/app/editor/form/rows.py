"""The lines of the form, the one in hand, and how one gets to another."""

from textual import events
from textual.message import Message
from textual.strip import Strip

from vramtui.app.editor.editor_view import EditorView
from vramtui.app.editor.form.line_edit import TypingLine
from vramtui.app.editor.form.lines import ABOUT, FieldState, about, heading, line_of
from vramtui.app.editor.form.outline import Entry, Outline
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines
from vramtui.presets.form.types import FormGroup
from vramtui.presets.reading import PresetProblem

AHEAD = 4


class FormRows(Lines[View], can_focus=True):
    """All that a preset can say, table by table, with a cursor."""

    class Chosen(Message):
        """The cursor is on another entry, moved by hand."""

    def __init__(self) -> None:
        super().__init__(id="form")
        self._look: EditorView | None = None
        self.outline = Outline()
        self._top = 0
        self._wrong: dict[str, PresetProblem] = {}
        self._typed: TypingLine | None = None

    # --- what is shown -------------------------------------------------------------------------------------------

    def read(self, look: EditorView, at: str | None = None) -> None:
        """Show this draft from now on; the cursor stays on its field.

        Args:
            look: the draft.
            at: it is another draft than before: the cursor goes to the field of that key, its table's title in sight.
        """
        self._look = look
        self._wrong = {problem.key: problem for problem in reversed(look.problems) if problem.key}
        if at is not None:
            self.outline.opened.clear()
        self.outline.take(look.groups)
        if at is not None:
            self.outline.reveal(at)
            self._top = self.outline.title_above()
        self.redraw()

    def entitle(self, title: str, subtitle: str) -> None:
        """Put these into the frame."""
        if (title, subtitle) != self._titles:
            self._entitle((title, subtitle))

    @property
    def entry(self) -> Entry | None:
        """What the cursor is on."""
        return self.outline.entry

    def refused(self, key: str) -> str | None:
        """What was typed into the field of that key and cannot stand in the text."""
        return self._look.refused.get(key) if self._look is not None else None

    def show_line(self, line: int) -> None:
        """Put the cursor on what stands at `line` of the text, or before it."""
        key = self.outline.key_at_line(line)
        if key and key != self.outline.key:
            self._typed = None
            self.go_to(key)

    def go_to(self, key: str) -> None:
        """Put the cursor on the field called `key`."""
        self.outline.reveal(key)
        self.redraw()

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """The entries around the cursor, and the help on the one under it."""
        del view
        look, at, count = self._look, self.outline.at, len(self.outline.entries)
        if look is None:
            return []
        told = about(self.entry, self._problem(self.entry), palette, width)
        rows = max(1, height - ABOUT)
        ahead = min(AHEAD, rows // 4)
        self._top = min(self._top, max(0, at - ahead))
        self._top = max(self._top, at - rows + 1 + ahead)
        self._top = max(0, min(self._top, count - rows))
        lines = [self._line(n, look, palette, width) for n in range(self._top, min(count, self._top + rows))]
        blank = Strip.blank(width, palette.text)
        return [*lines, *[blank] * (rows - len(lines)), *told][:height]

    def _line(self, at: int, look: EditorView, palette: Palette, width: int) -> Strip:
        entry, in_hand = self.outline.entries[at], at == self.outline.at
        if isinstance(entry, FormGroup):
            return heading(entry, palette, width, is_open=self.outline.is_open(entry), in_hand=in_hand)
        place = FieldState(
            depth=self.outline.depths[at],
            is_open=self.outline.is_open(entry),
            is_wrong=self._problem(entry) is not None,
            is_changed=entry.value != look.saved.get(entry.key) and not entry.is_new,
            in_hand=in_hand,
            refused=look.refused.get(entry.key),
        )
        return line_of(entry, place, palette, width, self._typed if in_hand else None)

    def _problem(self, entry: Entry | None) -> PresetProblem | None:
        """What is wrong at an entry, or within a value that is a list."""
        if entry is None or not entry.key:
            return None
        if entry.key in self._wrong:
            return self._wrong[entry.key]
        if isinstance(entry, FormGroup):
            return None
        inner = (f"{entry.key}[", f"{entry.key}.")
        return next((problem for key, problem in self._wrong.items() if key.startswith(inner)), None)

    # --- moving --------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Another entry under the cursor."""
        self.finish()
        outline = self.outline
        outline.at = max(0, min(len(outline.entries) - 1, outline.at + by))
        self.redraw()
        self.post_message(self.Chosen())

    def action_table(self, direction: int) -> None:
        """The next table's title under the cursor."""
        entries = self.outline.entries
        at = self.outline.at + direction
        while 0 <= at < len(entries) and not isinstance(entries[at], FormGroup):
            at += direction
        self.action_move(at - self.outline.at)

    def on_mouse_scroll_down(self) -> None:
        """Three entries on."""
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        """Three entries back."""
        self.action_move(-3)

    def on_click(self, event: events.Click) -> None:
        """A click chooses; one on the chosen entry opens it."""
        at = event.get_content_offset(self)
        row = self._top + at.y if at is not None else -1
        if at is None or not 0 <= row < len(self.outline.entries) or at.y >= self.size.height - ABOUT:
            return
        if row == self.outline.at:
            self.action_open()
        else:
            self.action_move(row - self.outline.at)

    def open_entry(self, entry: Entry, *, wanted: bool) -> None:
        """Show the fields of a table or the elements of a list, or only its title."""
        self.outline.open(entry, wanted=wanted)
        self.redraw()

    # --- what the typing says ------------------------------------------------------------------------------------

    def action_open(self) -> None:
        """What a click on the entry in hand does."""
        raise NotImplementedError

    def finish(self) -> None:
        """What was typed stands: Escape does not take it back any more."""
        raise NotImplementedError
