"""What the parts of the editor share: the draft, the look of it, and the ways in which it changes."""

from collections.abc import Callable
from typing import Protocol

from textual.widgets import TextArea

from vramtui.app.editor.editor_view import DraftEstimator, EditorView
from vramtui.app.editor.estimate_panel import TotalLine, Totals
from vramtui.app.editor.form.panel import FormPanel
from vramtui.app.editor.form.start_row import first_key
from vramtui.app.editor.toml_text import TomlText
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.core.runs.run import Run
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.draft.draft import Draft
from vramtui.presets.form.types import FormField
from vramtui.presets.library import PresetLibrary


class EditorHost(Protocol):
    """What the editor needs of the dashboard."""

    def preset_saved(self, found: PresetFile) -> None:
        """Know a preset as it was saved."""
        ...

    def preset_deleted(self, key: str) -> None:
        """A preset's file has gone."""
        ...

    def running(self) -> tuple[int, str] | None:
        """Pid and command of the chosen process; None where there is none."""
        ...

    def preset_closed(self) -> None:
        """The editor was left."""
        ...

    def runs_of(self, key: str) -> tuple[Run, ...]:
        """The runs of a preset that are known: the chosen process's first, then those of the history."""
        ...

    @property
    def known_presets(self) -> PresetLibrary:
        """The presets that a new one can begin with."""
        ...


class DraftScreen(ViewScreen):
    """A screen with one draft. Each change is looked at once: form, text and totals follow from that `look`."""

    def __init__(self, draft: Draft, judge: DraftEstimator, office: EditorHost) -> None:
        super().__init__()
        self.draft = draft
        self.judge = judge
        self.office = office
        judge.remember(draft)
        self.look = judge.look(draft)
        # The line of the text that the form was last set beside: it is left where the person put it until that moves.
        self._row = 0

    @property
    def form(self) -> FormPanel:
        """The form."""
        return self.query_one(FormPanel)

    @property
    def area(self) -> TomlText:
        """The text."""
        return self.query_one(TomlText)

    def begin(self, draft: Draft) -> None:
        """Edit another draft."""
        self.draft = draft
        self.judge = DraftEstimator(self.judge.predictor, self.judge.card)
        self.judge.remember(draft)
        self.open_draft()

    def open_draft(self) -> None:
        """Show the draft, with the cursors on what is wrong or on what people change first."""
        self.area.load_text(self.draft.text)
        self.form.finish()
        self._refresh(is_other=True)
        self._follow(anyway=True)
        first = next(iter(self.look.problems), None)
        if first is not None and not first.key and first.line is not None:
            self.call_after_refresh(self._show_in_text, first.line)

    def _show_in_text(self, line: int) -> None:
        """The keys go to a line of the text that no field stands for."""
        self.area.focus()
        self._row = min(line, self.area.document.line_count) - 1
        self.area.move_cursor((self._row, 0))

    def refresh_all(self) -> None:
        """Look at the draft after something else than the form has changed it."""
        self.form.finish()
        self._refresh()

    def _refresh(self, *, is_other: bool = False) -> None:
        """Look at the draft and show it everywhere; `is_other` where it is not the one that was shown before."""
        look = self.look = self.judge.look(self.draft)
        # What a person waits for comes first: each of these is on the terminal before the next begins.
        self.query_one(Totals).read(look)
        self.query_one(TotalLine).read(look)
        self.form.read(look, first_key(look.groups, look.problems) if is_other else None)
        self.area.show_text(self.draft.text)
        self.area.read(look)
        self._entitle(look)

    def _entitle(self, look: EditorView) -> None:
        raise NotImplementedError

    # --- what the form writes with -- -----------------------------------------------------------------------

    def put(self, key: str, raw: str) -> None:
        """Take `raw` for the value at `key`."""
        self.draft.edits.set_value(key, raw)
        self._refresh()
        self._follow()

    def take_out(self, key: str) -> None:
        """Say nothing at `key`."""
        self.draft.edits.unset(key)
        self._refresh()

    def end_step(self) -> None:
        """The next change is an undo step of its own."""
        self.draft.edits.end_step()

    def add(self, key: str) -> str:
        """One more element of a list, like the one at `key`; the new one's key."""
        new = self.draft.edits.add_item(key)
        self._refresh()
        return new

    def shift(self, key: str, by: int) -> str:
        """Move an element of a list by one place; its key then."""
        there = self.draft.edits.move_item(key, by)
        self._refresh()
        return there

    # --- form and text follow each other -------------------------------------------------------------------------

    def on_form_panel_chosen(self) -> None:
        """The text's cursor goes where the form's is."""
        self._follow()

    def _follow(self, *, anyway: bool = False) -> None:
        """Put the text's cursor where the form's is, unless it is the text that has the keys."""
        entry = self.form.entry
        if entry is not None and entry.line is not None and (anyway or not self.area.has_focus):
            row = min(entry.line - 1, self.area.document.line_count - 1)
            if row != self.area.cursor_location[0]:
                self.area.move_cursor((row, 0))
        self._row = self.area.cursor_location[0]

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Something was typed into the text."""
        event.stop()
        before = self.draft.text
        if self.area.text != before:
            self.draft.edits.set_text(self.area.text)
        if self.draft.text != before:
            self.refresh_all()
            self._lead()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        """The form's cursor goes where the text's is."""
        event.stop()
        if self.area.cursor_location[0] != self._row:
            self._lead()

    def _lead(self) -> None:
        self._row = self.area.cursor_location[0]
        if self.area.has_focus:
            self.form.show_line(self.area.cursor_location[0] + 1)

    # --- choices -------------------------------------------------------------------------------------------------

    def on_form_panel_list_asked(self, message: FormPanel.ListAsked) -> None:
        """Show the choices of a field."""
        from vramtui.app.editor.dialogs import Pick  # noqa: PLC0415 - loads the list widgets

        field = message.field
        helps = field.choice_helps or ("",) * len(field.choices)
        lines = [
            (choice, "default" if not helps[at] and choice == field.default else helps[at])
            for at, choice in enumerate(field.choices)
        ]
        now = field.value if field.value is not None else field.default

        def chosen(at: int | None) -> None:
            if at is not None:
                self._choose(field, field.choices[at])

        first = field.choices.index(now) if now in field.choices else 0
        self.app.push_screen(Pick(field.key, lines, first), chosen)

    def _choose(self, field: FormField, choice: str) -> None:
        self.put(field.key, choice)
        self.end_step()
        if field.key.endswith(".kind"):
            self.ask_about_unknown(choice)

    def ask_about_unknown(self, kind: str) -> None:
        """After another kind was chosen: what is to become of the keys that it does not have."""
        raise NotImplementedError

    def ask(self, then: Callable[[], None]) -> None:
        """Ask what becomes of what is not saved, then go on; at once where there is nothing."""
        raise NotImplementedError
