"""What others do to the draft's file: noticed, taken, or asked about."""

from collections.abc import Callable
from pathlib import Path

from vramtui.app.editor.dialogs import QuestionDialog, QuestionOption
from vramtui.app.editor.draft_screen import DraftScreen
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.draft.draft import difference_between

Then = Callable[[], None]


class FileWatcher(DraftScreen):
    """Looks at the file now and then; what is unsaved here is never given up without an answer."""

    def look_at_disk(self) -> None:
        """Take another text of the file where nothing is unsaved; ask where something is."""
        path = self.draft.path
        if path is None or self.app.screen is not self or not self.draft.changed_on_disk():
            return
        name = at_home(path)
        if self.draft.disk_text is None:
            self.draft.keep_mine()
            self.notify(f"{name} was deleted; saving writes it again.", severity="warning", markup=False)
            self.refresh_all()
        elif self.draft.is_changed:
            self._ask_about_disk(None)
        else:
            self._take_theirs()
            self.notify(f"{name} was changed by another program; this is its new text.", markup=False)

    def _ask_about_disk(self, then: Then | None) -> None:
        """Theirs or mine. Without an answer it stands as it was, and is asked again."""
        there = self.draft.disk_text or ""
        answers = (
            QuestionOption("t", "use the file's version; Ctrl+Z restores yours"),
            QuestionOption("k", "keep mine; saving overwrites the file"),
        )

        def answered(key: str | None) -> None:
            if key == "t":
                self._take_theirs()
            elif key == "k":
                self.draft.keep_mine()
                self.judge.remember(self.draft)
                self.refresh_all()
                if then is not None:
                    then()

        self.app.clear_notifications()  # they would lie on the answers
        name = at_home(self.draft.path) if self.draft.path is not None else ""
        question = f"{name} was changed by another program. From yours to the file's:"
        difference = difference_between(self.draft.text, there, "yours", "theirs")
        self.app.push_screen(QuestionDialog("Changed on disk", question, answers, difference), answered)

    def _take_theirs(self) -> None:
        self.draft.take_disk()
        self.judge.remember(self.draft)
        self.refresh_all()
        if self.draft.is_current and self.draft.preset is not None and self.draft.path is not None:
            found = PresetFile(
                key=self.draft.name,
                path=str(self.draft.path),
                bundled=self.draft.bundled,
                preset=self.draft.preset,
            )
            self.office.preset_saved(found)


def at_home(path: Path) -> str:
    """A path safe to show, the home folder as `~`."""
    home = Path.home()
    return printable(f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path))
