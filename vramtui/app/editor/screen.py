"""The preset editor as a whole screen."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical
from textual.widget import Widget

from vramtui.app.editor.editor_view import EditorView
from vramtui.app.editor.estimate_panel import TotalLine, Totals
from vramtui.app.editor.file_actions import FileActions
from vramtui.app.editor.file_watcher import at_home
from vramtui.app.editor.form.panel import FormPanel
from vramtui.app.editor.keys import EDITOR_BINDINGS
from vramtui.app.editor.new_preset import NewPreset
from vramtui.app.editor.toml_text import TomlText
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.lines import plain
from vramtui.core.base.text import printable
from vramtui.presets.draft.draft import Draft

WIDE, VERY_WIDE = 112, 170
LOOK_EVERY = 1.0


class EditorScreen(FileActions, NewPreset):
    """The form beside the text, the estimate below; narrow terminals show one of them at a time."""

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
    FIRST_FOCUS = "FormPanel"

    def compose(self) -> ComposeResult:
        """All panels."""
        yield Header("Editor")
        with Container(id="editor"):
            yield FormPanel(self)
            with Vertical(id="beside"):
                yield TomlText()
                yield Totals()
        yield TotalLine()
        # Letters are typed here, and panels share some of the keys.
        yield KeyBar(only=[one.id or "" for one in EDITOR_BINDINGS if isinstance(one, Binding)])

    def on_mount(self) -> None:
        """Show the draft, and look at its file now and then."""
        self.open_draft()
        self.set_interval(LOOK_EVERY, self.look_at_disk)

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

    def action_undo(self) -> None:
        """Back by one step."""
        if not self.draft.edits.can_undo:
            self.notify("There is nothing to undo.", timeout=2, markup=False)
        self.draft.edits.undo()
        self.refresh_all()

    def action_redo(self) -> None:
        """Forward again by one step."""
        if not self.draft.edits.can_redo:
            self.notify("There is nothing to redo.", timeout=2, markup=False)
        self.draft.edits.redo()
        self.refresh_all()

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
        return self.form, self.area, self.query_one(Totals)

    def _entitle(self, look: EditorView) -> None:
        mark = "*" if look.is_changed else ""
        self.form.entitle(f"Preset · {printable(look.name)}{mark}", look.where)
        title, count = f"TOML · {plain(_place(self.draft))}", len(look.problems)
        said = f"{count} error{'s' if count > 1 else ''}" if count else ""
        if (self.area.border_title, self.area.border_subtitle) != (title, said):
            self.area.border_title, self.area.border_subtitle = title, said


def _place(draft: Draft) -> str:
    """Where the text is: a bundled preset by its place among them, one's own with the home folder as `~`."""
    if draft.path is None:
        return "new"
    if draft.bundled:
        return printable("/".join(draft.path.parts[-3:]))
    return at_home(draft.path)
