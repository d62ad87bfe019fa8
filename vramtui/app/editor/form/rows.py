"""The lines of the form, the one in hand, and what is seen of them."""

from textual.strip import Strip

from vramtui.app.editor.editor_view import EditorView
from vramtui.app.editor.form.field_input import TypingLine
from vramtui.app.editor.form.lines import ABOUT, FieldState, about, heading, line_of
from vramtui.app.editor.form.outline import Entry, Outline, is_title
from vramtui.app.themes import Palette
from vramtui.presets.form.types import FormGroup
from vramtui.presets.reader import PresetProblem

AHEAD = 4


class FormRows:
    """All that a preset can say, table by table, with a cursor."""

    def __init__(self) -> None:
        self.outline = Outline()
        self._look: EditorView | None = None
        self._top = 0
        self._wrong: dict[str, PresetProblem] = {}

    def read(self, look: EditorView, at: str | None = None) -> None:
        """Show this draft from now on; the cursor stays on its field.

        Args:
            look: the draft.
            at: it is another draft than before: the cursor goes to the field of that key, its table's title in sight.
        """
        self._look = look
        self._wrong = {problem.key: problem for problem in reversed(look.problems) if problem.key}
        self.outline.take(look.groups, anew=at is not None)
        if at is not None:
            self.outline.reveal(at)
            self._top = self.outline.title_above()

    @property
    def entry(self) -> Entry | None:
        return self.outline.entry

    def refused(self, key: str) -> str | None:
        """What was typed into the field of that key and cannot stand in the text."""
        return self._look.refused.get(key) if self._look is not None else None

    def at_row(self, row: int, height: int) -> int | None:
        """Which entry is drawn `row` lines from the top, of `height` lines; None where none is."""
        at = self._top + row
        return at if row < height - ABOUT and 0 <= at < len(self.outline.entries) else None

    def moved(self, by: int) -> int:
        """The entry that is `by` from the cursor, the last one where there are not as many."""
        return max(0, min(len(self.outline.entries) - 1, self.outline.at + by))

    def next_table(self, direction: int) -> int:
        """How far it is to the next table's title."""
        entries = self.outline.entries
        at = self.outline.at + direction
        while 0 <= at < len(entries) and not is_title(entries[at]):
            at += direction
        return at - self.outline.at

    def build(self, palette: Palette, width: int, height: int, typed: TypingLine | None) -> list[Strip]:
        """The entries around the cursor, and the help on the one under it, into which `typed` is being typed."""
        look, at, count = self._look, self.outline.at, len(self.outline.entries)
        if look is None:
            return []
        told = about(self.entry, self._problem(self.entry), palette, width)
        rows = max(1, height - ABOUT)
        ahead = min(AHEAD, rows // 4)
        self._top = min(self._top, max(0, at - ahead))
        self._top = max(self._top, at - rows + 1 + ahead)
        self._top = max(0, min(self._top, count - rows))
        lines = [self._line(n, look, palette, width, typed) for n in range(self._top, min(count, self._top + rows))]
        blank = Strip.blank(width, palette.text)
        return [*lines, *[blank] * (rows - len(lines)), *told][:height]

    def _line(self, at: int, look: EditorView, palette: Palette, width: int, typed: TypingLine | None) -> Strip:
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
        return line_of(entry, place, palette, width, typed if in_hand else None)

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
