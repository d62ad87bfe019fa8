"""The dialog for formats and folder of snapshots."""

from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, SelectionList, Static
from textual.widgets.selection_list import Selection

from vramtui.app.ui.chooser import CheckList
from vramtui.app.ui.dialog import Window
from vramtui.core.schema.settings import FORMATS, Format, SnapshotSettings
from vramtui.models.named_files import is_plain_file

TITLES: dict[Format, str] = {
    "json": "JSON, for programs",
    "csv": "CSV, a row for each process and part",
    "md": "Markdown, to paste into a ticket",
    "html": "HTML, one page with graphs and the screen that needs no network",
}


class SaveOptions(Window[SnapshotSettings]):
    """Dismissed with the choice, or None."""

    BINDINGS = [
        Binding(
            "ctrl+s", "keep", "Keep", id="saving.keep", show=False, priority=True, tooltip="Save formats and folder"
        ),
        Binding("escape", "close", "Close", id="saving.close", show=False),
    ]

    def __init__(self, settings: SnapshotSettings) -> None:
        super().__init__("Snapshots", "Space toggle · Tab next · Ctrl+S save · Esc cancel")
        self._settings = settings

    def inside(self) -> ComposeResult:
        chosen = self._settings.formats
        yield Static(Content("What `s` writes:"))
        yield CheckList[Format](
            *(Selection(Content(TITLES[name]), name, name in chosen, id=name) for name in FORMATS),
            id="formats",
        )
        yield Static(Content("Folder (empty: where vramtui was started):"))
        yield Input(self._settings.folder or "", placeholder=str(Path.cwd()), id="folder")
        yield Static(id="wrong")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self.query_one(SelectionList).focus()

    def on_input_submitted(self) -> None:
        self.action_keep()

    def action_keep(self) -> None:
        """Take the choice, unless nothing is selected or the folder is a file."""
        selected = set(self.query_one(SelectionList).selected)
        folder = self.query_one("#folder", Input).value.strip()
        wrong = ""
        if not selected:
            wrong = "Select at least one format."
        elif folder and is_plain_file(folder):
            wrong = "That is a file, not a folder."
        if wrong:
            self.query_one("#wrong", Static).update(Content(wrong))
            return
        formats = tuple(name for name in FORMATS if name in selected)
        self.dismiss(SnapshotSettings(folder=folder or None, formats=formats))
