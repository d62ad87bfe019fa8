"""The preset editor as a whole screen."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical
from textual.widget import Widget
from textual.widgets import TextArea

from vramtui.app.editor.actions.field_choices import FieldChoices
from vramtui.app.editor.actions.file_actions import FileActions, FileWatcher
from vramtui.app.editor.actions.measured_figures import MeasuredFigures
from vramtui.app.editor.actions.new_preset import NewPreset
from vramtui.app.editor.editor_view import DraftEstimator
from vramtui.app.editor.form.panel import FormPanel
from vramtui.app.editor.host import EditorHost
from vramtui.app.editor.keys import EDITOR_BINDINGS
from vramtui.app.editor.open_draft import OpenDraft
from vramtui.app.editor.panels import EditorPanels
from vramtui.app.editor.toml_text import TomlText
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.presets.draft.draft import Draft

WIDE, VERY_WIDE = 112, 170
LOOK_EVERY = 1.0


class EditorScreen(ViewScreen):
    """The form beside the text, the estimate below; narrow terminals show one of them at a time.

    Args:
        draft: what is edited.
        estimator: of the card that it is estimated for.
        host: the dashboard.

    Attributes:
        open: the draft and its estimate.
        panels: what shows them.
        watcher: what others do to the file.
        file: save, revert, delete, leave.
    """

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
    FIRST_FOCUS = "FormPanel"

    def __init__(self, draft: Draft, estimator: DraftEstimator, host: EditorHost) -> None:
        super().__init__()
        self.open = OpenDraft(draft, estimator)
        self.panels = EditorPanels(self.open, self.call_after_refresh)
        self.open.shown_by(self.panels)
        self.watcher = FileWatcher(self, self.open, host)
        self.file = FileActions(self, self.open, self.watcher, host)
        self._new = NewPreset(self, self.open, host)
        self._choices = FieldChoices(self, self.open)
        self._measured = MeasuredFigures(self, self.open, host, self.form.go_to)

    def compose(self) -> ComposeResult:
        yield Header("Editor")
        with Container(id="editor"):
            yield self.panels.form
            with Vertical(id="beside"):
                yield self.panels.area
                yield self.panels.totals
        yield self.panels.total_line
        # Letters are typed here, and panels share some of the keys.
        yield KeyBar(only=[one.id or "" for one in EDITOR_BINDINGS if isinstance(one, Binding)])

    def on_mount(self) -> None:
        """Show the draft, and look at its file now and then."""
        self.open.show_other()
        self.set_interval(LOOK_EVERY, self.watcher.look)

    @property
    def draft(self) -> Draft:
        return self.open.draft

    @property
    def form(self) -> FormPanel:
        return self.panels.form

    @property
    def area(self) -> TomlText:
        return self.panels.area

    def show(self, view: View, palette: Palette) -> None:
        """Draw it; the draft's estimate may have become nearer meanwhile."""
        super().show(view, palette)
        self.open.look_again()

    # --- pages ---------------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        """What has the keys can be seen."""
        self.call_after_refresh(self._show_focused)

    def action_turn(self, direction: int) -> None:
        """The next page of a narrow terminal; elsewhere the next panel gets the keys."""
        panels = self._panels_in_order()
        now = next((at for at, panel in enumerate(panels) if panel.has_focus), 0)
        if self.has_class("-narrow"):
            now = next(at for at, page in enumerate(self.PAGES) if self.has_class(f"page-{page}"))
        at = (now + direction) % len(panels)
        self._turn_to(at)
        panels[at].focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """All of them, at any size."""
        del action, parameters
        return True

    def on_descendant_focus(self) -> None:
        """The page of what has the keys is shown."""
        self._show_focused()

    def _show_focused(self) -> None:
        at = next((at for at, panel in enumerate(self._panels_in_order()) if panel.has_focus), None)
        if at is not None:
            self._turn_to(at)

    def _turn_to(self, at: int) -> None:
        for number, page in enumerate(self.PAGES):
            self.set_class(number == at, f"page-{page}")

    def _panels_in_order(self) -> tuple[Widget, Widget, Widget]:
        return self.form, self.area, self.panels.totals

    # --- what the panels say -------------------------------------------------------------------------------------

    def on_form_panel_chosen(self) -> None:
        """The text's cursor goes where the form's is."""
        self.panels.follow()

    def on_form_panel_list_asked(self, message: FormPanel.ListAsked) -> None:
        """Show the choices of a field."""
        self._choices.ask(message.field)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Something was typed into the text."""
        event.stop()
        self.panels.take_typed()

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        """The form's cursor goes where the text's is."""
        event.stop()
        self.panels.cursor_moved()

    # --- keys ----------------------------------------------------------------------------------------------------

    def action_undo(self) -> None:
        if not self.open.undo():
            self.notify("There is nothing to undo.", timeout=2, markup=False)

    def action_redo(self) -> None:
        if not self.open.redo():
            self.notify("There is nothing to redo.", timeout=2, markup=False)

    def action_save(self) -> None:
        self.file.save()

    def action_difference(self) -> None:
        """Show what differs from the saved text."""
        self.file.show_difference()

    def action_revert(self) -> None:
        self.file.revert()

    def action_delete(self) -> None:
        self.file.delete()

    def action_leave(self) -> None:
        """Back to where the editor was opened."""
        self.file.ask(self.file.leave)

    def action_new(self) -> None:
        """Ask what to begin another draft with."""
        self.file.ask(self._new.ask)

    def action_find(self) -> None:
        """Go to a field by its name."""
        self._choices.find(self.panels.go_to)

    def action_rename(self) -> None:
        self.file.rename()

    def action_measured(self) -> None:
        self._measured.take()
