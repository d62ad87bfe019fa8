"""What others do to the draft's file: noticed, taken, or asked about."""

from collections.abc import Callable
from pathlib import Path

from textual.screen import Screen

from vramtui.app.editor.dialogs import QuestionDialog, QuestionOption
from vramtui.app.editor.host import EditorHost
from vramtui.app.editor.open_draft import OpenDraft
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.draft.draft import difference_between

Then = Callable[[], None]


class FileWatcher:
    """Looks at the file now and then; what is unsaved here is never given up without an answer.

    Args:
        screen: asks and tells.
        open_draft: whose file it is.
        host: is told of a text that was taken from the disk.
    """

    def __init__(self, screen: Screen[None], open_draft: OpenDraft, host: EditorHost) -> None:
        self._screen = screen
        self._open = open_draft
        self._host = host

    def look(self) -> None:
        """Take another text of the file where nothing is unsaved; ask where something is."""
        path = self._open.draft.path
        if path is None or self._screen.app.screen is not self._screen or not self._open.draft.changed_on_disk():
            return
        name = at_home(path)
        if self._open.draft.disk_text is None:
            self._open.draft.keep_mine()
            self._screen.notify(f"{name} was deleted; saving writes it again.", severity="warning", markup=False)
            self._open.refresh()
        elif self._open.draft.is_changed:
            self.ask(None)
        else:
            self._take_theirs()
            self._screen.notify(f"{name} was changed by another program; this is its new text.", markup=False)

    def ask(self, then: Then | None) -> None:
        """Theirs or mine. Without an answer it stands as it was, and is asked again."""
        there = self._open.draft.disk_text or ""
        answers = (
            QuestionOption("t", "use the file's version; Ctrl+Z restores yours"),
            QuestionOption("k", "keep mine; saving overwrites the file"),
        )

        def on_answer(key: str | None) -> None:
            if key == "t":
                self._take_theirs()
            elif key == "k":
                self._open.draft.keep_mine()
                self._open.saved()
                if then is not None:
                    then()

        self._screen.app.clear_notifications()  # they would lie on the answers
        name = at_home(self._open.draft.path) if self._open.draft.path is not None else ""
        question = f"{name} was changed by another program. From yours to the file's:"
        difference = difference_between(self._open.draft.text, there, "yours", "theirs")
        self._screen.app.push_screen(QuestionDialog("Changed on disk", question, answers, difference), on_answer)

    def _take_theirs(self) -> None:
        self._open.draft.take_disk()
        self._open.saved()
        if self._open.draft.is_current and self._open.draft.preset is not None and self._open.draft.path is not None:
            found = PresetFile(
                key=self._open.draft.name,
                path=str(self._open.draft.path),
                bundled=self._open.draft.bundled,
                preset=self._open.draft.preset,
            )
            self._host.preset_saved(found)


def at_home(path: Path) -> str:
    """A path safe to show, the home folder as `~`."""
    home = Path.home()
    return printable(f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path))
