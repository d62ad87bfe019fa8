"""The editor and its file: save, revert, delete, leave."""

from pathlib import Path

from vramtui.app.editor.dialogs import Ask, Difference, QuestionDialog, QuestionOption
from vramtui.app.editor.file_watcher import FileWatcher, Then, at_home
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.draft.creation import checked_name
from vramtui.presets.draft.draft import ChangedOnDisk, NameTaken
from vramtui.presets.reading import load_preset
from vramtui.presets.toml.whole_files import NotDurable

UNSAVED = (QuestionOption("s", "save it"), QuestionOption("d", "discard the changes"))


class FileActions(FileWatcher):
    """Nothing that was typed is lost by any of it, but for what a person says is to be lost."""

    _is_asking = False

    # --- saving --------------------------------------------------------------------------------------------------

    def action_save(self) -> None:
        """Save it."""
        self.save()

    def save(self, then: Then | None = None, *, replace: bool = False) -> None:
        """Save the draft and go on with `then`; what stands in the way is said or asked."""
        bundled, name = self.draft.bundled, self.draft.name
        try:
            path = self.draft.save(replace=replace)
        except NameTaken as error:
            self._other_name(error, then)
        except ChangedOnDisk:
            self._ask_about_disk(lambda: self.save(then, replace=True))
        except NotDurable as error:
            self._is_saved(self.draft.path, str(error), "warning", then)
        except UserError as error:
            self.app.clear_notifications()
            self.notify(f"Not saved: {error}", title="Preset", severity="error", timeout=10, markup=False)
        else:
            said = f"Saved as {at_home(path)}"
            if bundled:
                said = f"Saved as a copy of your own, {at_home(path)}; {printable(name)} is unchanged."
            self._is_saved(path, said, "information", then)

    def _is_saved(self, path: Path | None, said: str, severity: str, then: Then | None) -> None:
        self.judge.remember(self.draft)
        if path is not None:
            preset = load_preset(path)
            self.office.preset_saved(PresetFile(key=self.draft.name, path=str(path), bundled=False, preset=preset))
        self.refresh_all()
        self.app.clear_notifications()  # a failure before this one is over
        self.notify(said, title="Preset", severity="warning" if severity == "warning" else "information", markup=False)
        if then is not None:
            then()

    def _other_name(self, error: NameTaken, then: Then | None) -> None:
        """The place is taken: another name, or over the file that is there."""
        answers = (QuestionOption("r", "replace the file"), QuestionOption("n", "choose another name"))

        def answered(key: str | None) -> None:
            if key == "r":
                self.save(then, replace=True)
            elif key == "n":
                self._ask_name(then)

        self.app.push_screen(QuestionDialog("Save the preset", f"{error.path} exists already.", answers), answered)

    def _ask_name(self, then: Then | None) -> None:
        def check(name: str) -> str:
            try:
                self.draft.name = checked_name(name)
            except UserError as error:
                return str(error)
            return ""

        def named(name: str | None) -> None:
            if name is not None:
                self.save(then)

        prompt = "Name of the preset, as commands use it:"
        self.app.push_screen(Ask("Save the preset", prompt, self.draft.name, check), named)

    # --- back, and away ------------------------------------------------------------------------------------------

    def action_difference(self) -> None:
        """Show what differs from the saved text."""
        difference = self.draft.difference()
        if difference:
            self.app.push_screen(Difference(f"Differences · {printable(self.draft.name)}", difference))
        else:
            self.notify("No differences from the saved text.", timeout=3, markup=False)

    def action_revert(self) -> None:
        """Back to the saved text."""
        if not self.draft.difference():
            self.notify("There are no changes to discard.", timeout=3, markup=False)
            return

        def answered(key: str | None) -> None:
            if key == "y":
                self.draft.revert()
                self.refresh_all()

        question = "Discard the changes? Ctrl+Z restores them."
        self.app.push_screen(
            QuestionDialog("Revert", question, (QuestionOption("y", "discard"),), self.draft.difference()), answered
        )

    def action_delete(self) -> None:
        """Delete the file."""
        path = self.draft.path
        if self.draft.bundled or path is None:
            sentence = "is a bundled preset and cannot be deleted" if path is not None else "has no file yet"
            self.notify(f"{printable(self.draft.name)} {sentence}.", markup=False)
            return

        def answered(key: str | None) -> None:
            if key == "y":
                self._delete(path)

        question = f"Delete {at_home(path)}? Its text stays here until you close the editor, so it can be saved again."
        self.app.push_screen(
            QuestionDialog("Delete the preset", question, (QuestionOption("y", "delete the file"),)), answered
        )

    def _delete(self, path: Path) -> None:
        try:
            self.draft.delete()
        except UserError as error:
            self.notify(str(error), title="Preset", severity="error", markup=False)
            return
        self.office.preset_deleted(self.draft.name)
        self.refresh_all()
        self.notify(f"{at_home(path)} is deleted.", title="Preset", markup=False)

    def action_leave(self) -> None:
        """Back to where the editor was opened."""
        self.ask(self.leave)

    def leave(self) -> None:
        """Close the editor."""
        if self.app.screen is self:
            self.app.pop_screen()
            self.office.preset_closed()

    @property
    def is_asking(self) -> bool:
        """Whether the question about what is not saved is on the screen now."""
        return self._is_asking

    def ask(self, then: Then) -> None:
        """Ask what becomes of what is not saved, then go on; at once where there is nothing."""
        if not self.draft.is_changed:
            then()
            return
        self._is_asking = True

        def answered(key: str | None) -> None:
            self._is_asking = False
            if key == "s":
                self.save(then)
            elif key == "d":
                then()

        question = f"{printable(self.draft.name)} is not saved."
        difference = self.draft.difference() if self.draft.path is not None else ""
        self.app.push_screen(QuestionDialog("Unsaved changes", question, UNSAVED, difference), answered)
