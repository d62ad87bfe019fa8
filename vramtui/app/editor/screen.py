"""The preset editor as a whole screen."""

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical
from textual.widget import Widget
from textual.widgets import TextArea

from vramtui.app.editor.actions import EditorActions, at_home
from vramtui.app.editor.dialogs import FieldChooser, Pick
from vramtui.app.editor.form_panel import FormPanel
from vramtui.app.editor.open_draft import Change, DraftEstimator, OpenDraft
from vramtui.app.editor.outline import first_key
from vramtui.app.editor.toml_text import TomlText
from vramtui.app.editor.totals import TotalLine, Totals
from vramtui.app.keys import EDITOR_BINDINGS
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.dialog import ask
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.lines import plain
from vramtui.core.base.text import printable
from vramtui.presets.draft.draft import Draft
from vramtui.presets.draft.form import FormField

if TYPE_CHECKING:
    from vramtui.app.editor.controller import EditorController

WIDE, VERY_WIDE = 112, 170
LOOK_EVERY = 1.0


class EditorScreen(EditorActions):
    """The form next to the text, the estimate below; narrow terminals show one of them at a time."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (VERY_WIDE, "-very-wide")]
    DEFAULT_CSS = """
    EditorScreen {
        layout: vertical; background: $background;
        Header, KeyBar, TotalLine { height: 1; }
        #editor { height: 1fr; layout: horizontal; }
        #form { width: 56; height: 100%; }
        #beside { width: 1fr; height: 100%; layout: vertical; }
        #text { height: 1fr; width: 1fr; }
        #totals { height: 17; width: 1fr; }
        TotalLine { display: none; }
        &.-very-wide #form { width: 62; }
        &.-very-wide #beside { layout: horizontal; }
        &.-very-wide #totals { width: 60; height: 100%; }
        &.-very-wide #text { height: 100%; }
        &.-narrow TotalLine { display: block; }
        &.-narrow #form { width: 100%; }
        &.-narrow #beside { width: 100%; }
        &.-narrow #totals { height: 1fr; }
        &.-narrow.page-form #beside { display: none; }
        &.-narrow.page-text #form, &.-narrow.page-text #totals { display: none; }
        &.-narrow.page-estimate #form, &.-narrow.page-estimate #text { display: none; }
    }
    """
    BINDINGS = EDITOR_BINDINGS
    PLACE = "editor"
    PAGES = ("form", "text", "estimate")
    TYPES = True
    FIRST_FOCUS = "FieldList"

    def __init__(self, draft: Draft, estimator: DraftEstimator, host: "EditorController") -> None:
        super().__init__()
        self.open = OpenDraft(draft, estimator, host, self._show_change)
        self.form = FormPanel(self.open, self._ask_choice, self._show_in_text)
        self.area = TomlText()
        self._totals = Totals()
        self._total_line = TotalLine()
        # The line of the text that the form followed last.
        self._row = 0

    def compose(self) -> ComposeResult:
        yield Header("Editor")
        with Container(id="editor"):
            yield self.form
            with Vertical(id="beside"):
                yield self.area
                yield self._totals
        yield self._total_line
        # Letters are typed here, and panels share some of the keys.
        yield KeyBar(only=[one.id or "" for one in EDITOR_BINDINGS if isinstance(one, Binding)])

    def on_mount(self) -> None:
        self.open.refresh("other")
        self.set_interval(LOOK_EVERY, self.look)

    def show(self, view: View, palette: Palette) -> None:
        super().show(view, palette)
        if self.open.estimator.is_nearer(self.open.look):
            self.open.refresh("estimate")

    def _show_change(self, change: Change) -> None:
        """Show the draft, the estimate first: each panel is on the terminal before the next begins."""
        look = self.open.look
        if change in {"changed", "other"}:
            self.form.finish()
        self._totals.read(look)
        self._total_line.read(look)
        if change == "estimate":
            return
        self.form.read(look, first_key(look.groups, look.problems) if change == "other" else None)
        if change == "other":
            self.area.load_text(self.draft.text)
        self.area.show_text(self.draft.text)
        self.area.read(look)
        draft, place, where = self.draft, "new", "new, not saved"
        if draft.path is not None and draft.bundled:
            place = printable("/".join(draft.path.parts[-3:]))
            where = "Bundled preset: saving creates your copy"
        elif draft.path is not None:
            place = at_home(draft.path)
            where = "unsaved changes" if draft.is_changed else "saved"
        self.form.border_title = plain(f"Preset · {printable(draft.name)}{'*' if draft.is_changed else ''}")
        self.form.border_subtitle = where
        count = len(look.problems)
        self.area.border_title = f"TOML · {plain(place)}"
        self.area.border_subtitle = f"{count} error{'s' if count > 1 else ''}" if count else ""
        self.follow(anyway=change == "other")
        first = look.problems[0] if look.problems else None
        if change == "other" and first is not None and not first.key and first.line is not None:
            line = first.line
            self.call_after_refresh(lambda: self._show_in_text(line))

    def follow(self, *, anyway: bool = False) -> None:
        """Move the text's cursor to the selected field, unless the text has the focus."""
        entry = self.form.entry
        if entry is not None and entry.line is not None and (anyway or not self.area.has_focus):
            row = min(entry.line - 1, self.area.document.line_count - 1)
            if row != self.area.cursor_location[0]:
                self.area.move_cursor((row, 0))
        self._row = self.area.cursor_location[0]

    def go_to(self, key: str) -> None:
        """Select a field and focus the form."""
        self.form.fields.focus()
        self.form.go_to(key)
        self.follow()

    def _show_in_text(self, line: int) -> None:
        self.area.focus()
        self._row = min(line, self.area.document.line_count) - 1
        self.area.move_cursor((self._row, 0))

    def on_option_list_option_highlighted(self) -> None:
        self.follow()

    def _ask_choice(self, field: FormField) -> None:
        """Show the choices of a field."""

        def choose(at: int) -> None:
            self.open.choose(field.key, field.choices[at])
            if field.key.endswith(".kind"):
                self.ask_about_unknown(field.choices[at])

        now = field.value if field.value is not None else field.default
        first = field.choices.index(now) if now in field.choices else 0
        helps = field.choice_helps or ("",) * len(field.choices)
        lines = [
            (choice, about or ("default" if choice == field.default else ""))
            for choice, about in zip(field.choices, helps, strict=True)
        ]
        ask(self.app, Pick(field.key, lines, first), choose)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if self.open.typed(self.area.text):
            self._lead()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        if self.area.cursor_location[0] != self._row:
            self.draft.end_step()
            self._lead()

    def _lead(self) -> None:
        """Select the field at the text's cursor."""
        self._row = self.area.cursor_location[0]
        if self.area.has_focus:
            self.form.show_line(self._row + 1)

    def on_resize(self) -> None:
        self.call_after_refresh(self.on_descendant_focus)

    def action_turn(self, direction: int) -> None:
        """Show the next page of a narrow terminal; elsewhere focus the next panel."""
        panels = self._panels_in_order()
        now = next((at for at, panel in enumerate(panels) if panel.has_focus), 0)
        if self.has_class("-narrow"):
            now = next(at for at, page in enumerate(self.PAGES) if self.has_class(f"page-{page}"))
        at = (now + direction) % len(panels)
        self._turn_to(at)
        panels[at].focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        del action, parameters
        return True

    def on_descendant_focus(self) -> None:
        """Show the page of the panel that has the focus."""
        at = next((at for at, panel in enumerate(self._panels_in_order()) if panel.has_focus), None)
        if at is not None:
            self._turn_to(at)

    def _turn_to(self, at: int) -> None:
        for number, page in enumerate(self.PAGES):
            self.set_class(number == at, f"page-{page}")

    def _panels_in_order(self) -> tuple[Widget, Widget, Widget]:
        return self.form.fields, self.area, self._totals

    def action_undo(self, name: str = "undo") -> None:
        self.form.finish()
        if not (self.draft.undo() if name == "undo" else self.draft.redo()):
            self.notify(f"There is nothing to {name}.", timeout=2, markup=False)
        self.open.refresh()

    def action_redo(self) -> None:
        self.action_undo("redo")

    def action_save(self) -> None:
        self.form.finish()
        self.save()

    def action_find(self) -> None:
        self.form.finish()
        ask(self.app, FieldChooser(self.draft.form), self.go_to)
