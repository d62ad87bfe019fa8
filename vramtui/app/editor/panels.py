"""The editor's panels side by side: each shows the draft, and the cursors of form and text follow each other."""

from collections.abc import Callable

from vramtui.app.editor.actions.file_actions import at_home
from vramtui.app.editor.editor_view import EditorView
from vramtui.app.editor.estimate_panel import TotalLine, Totals
from vramtui.app.editor.form.lines import first_key
from vramtui.app.editor.form.panel import FormPanel
from vramtui.app.editor.open_draft import OpenDraft
from vramtui.app.editor.toml_text import TomlText
from vramtui.app.ui.lines import plain
from vramtui.core.base.text import printable
from vramtui.presets.draft.draft import Draft


class EditorPanels:
    """The form, the text, the estimate and its one line.

    Args:
        open_draft: what they show.
        later: calls a function once what was drawn is on the screen.
    """

    def __init__(self, open_draft: OpenDraft, later: Callable[[Callable[[], None]], object]) -> None:
        self._open = open_draft
        self._later = later
        self.form = FormPanel(open_draft)
        self.area = TomlText()
        self.totals = Totals()
        self.total_line = TotalLine()
        # The line of the text that the form was last set beside: it is left where the person put it until that moves.
        self._row = 0

    # --- showing -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """What is being typed into the form stands."""
        self.form.input.finish()

    def show(self, view: EditorView) -> None:
        """Show the draft as it is now."""
        self._show(view, None)

    def show_estimate(self, view: EditorView) -> None:
        """Show another estimate of the same draft."""
        self.totals.read(view)
        self.total_line.read(view)

    def show_other(self, view: EditorView) -> None:
        """Show another draft, with the cursors on what is wrong or on what people change first."""
        self.area.load_text(self._open.draft.text)
        self._show(view, first_key(view.groups, view.problems))
        self.follow(anyway=True)
        first = next(iter(view.problems), None)
        if first is not None and not first.key and first.line is not None:
            line = first.line
            self._later(lambda: self._show_in_text(line))

    def _show(self, view: EditorView, at: str | None) -> None:
        # What a person waits for comes first: each of these is on the terminal before the next begins.
        self.show_estimate(view)
        self.form.read(view, at)
        self.area.show_text(self._open.draft.text)
        self.area.read(view)
        self._entitle(view)

    def _show_in_text(self, line: int) -> None:
        """The keys go to a line of the text that no field stands for."""
        self.area.focus()
        self._row = min(line, self.area.document.line_count) - 1
        self.area.move_cursor((self._row, 0))

    def _entitle(self, view: EditorView) -> None:
        mark = "*" if view.is_changed else ""
        self.form.entitle(f"Preset · {printable(view.name)}{mark}", view.where)
        title, count = f"TOML · {plain(place_of(self._open.draft))}", len(view.problems)
        said = f"{count} error{'s' if count > 1 else ''}" if count else ""
        if (self.area.border_title, self.area.border_subtitle) != (title, said):
            self.area.border_title, self.area.border_subtitle = title, said

    # --- form and text follow each other -------------------------------------------------------------------------

    def follow(self, *, anyway: bool = False) -> None:
        """Put the text's cursor where the form's is, unless it is the text that has the keys."""
        entry = self.form.entry
        if entry is not None and entry.line is not None and (anyway or not self.area.has_focus):
            row = min(entry.line - 1, self.area.document.line_count - 1)
            if row != self.area.cursor_location[0]:
                self.area.move_cursor((row, 0))
        self._row = self.area.cursor_location[0]

    def go_to(self, key: str) -> None:
        """The form has the keys, with its cursor on the field called `key`."""
        self.form.focus()
        self.form.go_to(key)
        self.follow()

    def take_typed(self) -> None:
        """Something was typed into the text."""
        if self._open.typed(self.area.text):
            self._lead()

    def cursor_moved(self) -> None:
        """The form's cursor goes where the text's is."""
        if self.area.cursor_location[0] != self._row:
            self._lead()

    def _lead(self) -> None:
        self._row = self.area.cursor_location[0]
        if self.area.has_focus:
            self.form.show_line(self.area.cursor_location[0] + 1)


def place_of(draft: Draft) -> str:
    """Where the text is: a bundled preset by its place among them, one's own with the home folder as `~`."""
    if draft.path is None:
        return "new"
    if draft.bundled:
        return printable("/".join(draft.path.parts[-3:]))
    return at_home(draft.path)
