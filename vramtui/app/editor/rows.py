"""The entries of the form, the one in hand, and how one gets to another."""

from collections.abc import Iterator

from textual import events
from textual.message import Message
from textual.strip import Strip

from vramtui.app.editor.form_lines import ABOUT, about, heading, line_of
from vramtui.app.editor.look import Look
from vramtui.app.editor.typing_line import TypingLine
from vramtui.app.state import View
from vramtui.app.themes import Palette
from vramtui.app.widgets.lines import Lines
from vramtui.presets.forms import Field, Group
from vramtui.presets.reading import Problem

Entry = Group | Field
AHEAD = 4


class FormRows(Lines, can_focus=True):
    """All that a preset can say, table by table, with a cursor."""

    class Chosen(Message):
        """The cursor is on another entry, moved by hand."""

    def __init__(self) -> None:
        super().__init__(id="form")
        self._look: Look | None = None
        self._entries: list[Entry] = []
        self._at = 0
        self._top = 0
        self._opened: dict[str, bool] = {}
        self._wrong: dict[str, Problem] = {}
        self._typed: TypingLine | None = None

    # --- what is shown -------------------------------------------------------------------------------------------

    def read(self, look: Look, at: str | None = None) -> None:
        """Show this draft from now on; the cursor stays on its field.

        Args:
            look: the draft.
            at: it is another draft than before: the cursor goes to the field of that key, its table's title in sight.
        """
        key = self._key()
        self._look = look
        self._wrong = {problem.key: problem for problem in reversed(look.problems) if problem.key}
        if at is None:
            self._list()
            self._find(key)
            self.redraw()
        else:
            self._opened.clear()
            self._reveal(at, top=True)

    def entitle(self, title: str, subtitle: str) -> None:
        """Put these into the frame."""
        if (title, subtitle) != self._titles:
            self._entitle((title, subtitle))

    @property
    def entry(self) -> Entry | None:
        """What the cursor is on."""
        return self._entries[self._at] if self._at < len(self._entries) else None

    def show_line(self, line: int) -> None:
        """Put the cursor on what stands at `line` of the text, or before it."""
        best: tuple[int, str] = (0, "")
        for group in self._look.groups if self._look is not None else ():
            entries: tuple[Entry, ...] = (group, *group.fields)
            best = max([best, *((e.line, _key_of(e)) for e in entries if e.line is not None and e.line <= line)])
        if best[1] and best[1] != self._key():
            self._typed = None
            self._reveal(best[1])

    def go_to(self, key: str) -> None:
        """Put the cursor on the field called `key`."""
        self._reveal(key)

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """The entries around the cursor, and what is told of the one under it."""
        del view
        look = self._look
        if look is None:
            return []
        entry = self.entry
        told = about(entry, self._problem(entry), palette, width)
        rows = max(1, height - ABOUT)
        ahead = min(AHEAD, rows // 4)
        self._top = min(self._top, max(0, self._at - ahead))
        self._top = max(self._top, self._at - rows + 1 + ahead)
        self._top = max(0, min(self._top, len(self._entries) - rows))
        lines = [
            self._line(at, look, palette, width) for at in range(self._top, min(len(self._entries), self._top + rows))
        ]
        blank = Strip.blank(width, palette.text)
        return [*lines, *[blank] * (rows - len(lines)), *told][:height]

    def _line(self, at: int, look: Look, palette: Palette, width: int) -> Strip:
        entry, in_hand = self._entries[at], at == self._at
        if isinstance(entry, Group):
            return heading(entry, palette, width, is_open=self._is_open(entry), in_hand=in_hand)
        typed = self._typed if in_hand else None
        wrong = self._problem(entry) is not None
        return line_of(entry, look, palette, width, wrong=wrong, in_hand=in_hand, typed=typed)

    def _problem(self, entry: Entry | None) -> Problem | None:
        """What is wrong at an entry, or within a value that is a list."""
        if entry is None or not entry.key:
            return None
        if entry.key in self._wrong:
            return self._wrong[entry.key]
        if isinstance(entry, Group):
            return None
        return next((problem for key, problem in self._wrong.items() if key.startswith(f"{entry.key}[")), None)

    # --- moving --------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Another entry under the cursor."""
        self.finish()
        self._at = max(0, min(len(self._entries) - 1, self._at + by))
        self.redraw()
        self.post_message(self.Chosen())

    def action_table(self, direction: int) -> None:
        """The next table's title under the cursor."""
        at = self._at + direction
        while 0 <= at < len(self._entries) and not isinstance(self._entries[at], Group):
            at += direction
        self.action_move(at - self._at)

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
        if at is None or not 0 <= row < len(self._entries) or at.y >= self.size.height - ABOUT:
            return
        if row == self._at:
            self.action_open()
        else:
            self.action_move(row - self._at)

    def _list(self) -> None:
        self._entries = list(self._all()) if self._look is not None else []

    def _all(self) -> Iterator[Entry]:
        for group in self._look.groups if self._look is not None else ():
            yield group
            if self._is_open(group):
                yield from group.fields

    def _is_open(self, group: Group) -> bool:
        """Tables that are not there stay closed until somebody opens them; one with something wrong is open."""
        if group.key in self._opened:
            return self._opened[group.key]
        return group.required or group.line is not None or any(field.value is not None for field in group.fields)

    def _key(self) -> str:
        return _key_of(self.entry) if self.entry is not None else ""

    def _find(self, key: str) -> None:
        keys = [_key_of(entry) for entry in self._entries]
        self._at = keys.index(key) if key in keys else max(0, min(self._at, len(keys) - 1))

    def _reveal(self, key: str, *, top: bool = False) -> None:
        for group in self._look.groups if self._look is not None else ():
            if any(field.key == key for field in group.fields) and not self._is_open(group):
                self._opened[group.key] = True
        self._list()
        self._find(key)
        if top:
            titles = [at for at, entry in enumerate(self._entries) if isinstance(entry, Group) and at <= self._at]
            self._top = titles[-1] if titles else 0
        self.redraw()

    def open_group(self, group: Group, *, wanted: bool) -> None:
        """Show the fields of a table, or only its title."""
        self._opened[group.key] = wanted
        self._list()
        self._find(_key_of(group))
        self.redraw()

    # --- what the typing says ------------------------------------------------------------------------------------

    def action_open(self) -> None:
        """What a click on the entry in hand does."""
        raise NotImplementedError

    def finish(self) -> None:
        """What was typed stands: Escape does not take it back any more."""
        raise NotImplementedError


def _key_of(entry: Entry) -> str:
    return f"[{entry.key}]" if isinstance(entry, Group) else entry.key
