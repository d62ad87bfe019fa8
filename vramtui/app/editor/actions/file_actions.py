"""The editor and its file: save, revert, delete, leave; and what something else writes into it meanwhile."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from textual.screen import Screen

from vramtui.app.editor.dialogs import Ask, Difference, QuestionDialog, QuestionOption, confirm
from vramtui.app.editor.host import EditorHost
from vramtui.app.editor.open_draft import OpenDraft
from vramtui.app.ui.dialog import ask
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.draft.creation import checked_name
from vramtui.presets.draft.draft import ChangedOnDiskError, NameTakenError, difference_between
from vramtui.presets.reader import load_preset
from vramtui.presets.toml.whole_files import NotDurableError

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
            preset_file = PresetFile(
                key=self._open.draft.name,
                path=str(self._open.draft.path),
                bundled=self._open.draft.bundled,
                preset=self._open.draft.preset,
            )
            self._host.preset_saved(preset_file)


def at_home(path: Path) -> str:
    """A path safe to show, the home folder as `~`."""
    home = Path.home()
    return printable(f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path))


UNSAVED = (QuestionOption("s", "save it"), QuestionOption("d", "discard the changes"))


class FileActions:
    """Save, load and revert; nothing that was typed is lost unless a person confirms it.

    Args:
        screen: asks and tells.
        open_draft: what is saved.
        watcher: knows what others did to the file.
        host: is told what was saved, deleted and left.
    """

    def __init__(self, screen: Screen[None], open_draft: OpenDraft, watcher: FileWatcher, host: EditorHost) -> None:
        self._screen = screen
        self._open = open_draft
        self._watcher = watcher
        self._host = host
        self._is_asking = False

    # --- saving --------------------------------------------------------------------------------------------------

    def save(self, then: Then | None = None, *, replace: bool = False) -> None:
        """Save the draft and go on with `then`; what stands in the way is said or asked. A bundled preset that has
        been given no name of its own asks for one.
        """
        draft = self._open.draft
        bundled = draft.path.stem if draft.bundled and draft.path is not None else ""
        if draft.name == bundled and not replace and not draft.edits.refusals:
            own = f"Saved as {printable(bundled)}, it stands in for the bundled one."
            self._ask_name(then, f"{bundled}-mine", f"Name of your own copy. {own}")
        else:
            self._write(bundled, then, replace=replace)

    def _write(self, bundled: str, then: Then | None, *, replace: bool = False) -> None:
        """Save the draft under its name; `bundled` is the name of the bundled preset that it was so far."""
        try:
            path = self._open.draft.save(replace=replace)
        except NameTakenError as error:
            self._other_name(error, then)
        except ChangedOnDiskError:
            self._watcher.ask(lambda: self.save(then, replace=True))
        except NotDurableError as error:
            self._is_saved(self._open.draft.path, str(error), "warning", then)
        except UserError as error:
            self._screen.app.clear_notifications()
            self._screen.notify(f"Not saved: {error}", title="Preset", severity="error", timeout=10, markup=False)
        else:
            message = f"Saved as {at_home(path)}"
            if bundled == path.stem:
                key, undo = printable(bundled), f"Delete {at_home(path)} to undo this."
                message = f"From now on {key} is yours: it stands in for the bundled one. {undo}"
            elif bundled:
                message += f"; the bundled {printable(bundled)} is unchanged."
            self._is_saved(path, message, "information", then)

    def _is_saved(self, path: Path | None, message: str, severity: str, then: Then | None) -> None:
        self._open.estimator.remember(self._open.draft)
        if path is not None:
            preset = load_preset(path)
            self._host.preset_saved(PresetFile(key=self._open.draft.name, path=str(path), bundled=False, preset=preset))
        self._open.refresh()
        self._screen.app.clear_notifications()  # a failure before this one is over
        self._screen.notify(
            message, title="Preset", severity="warning" if severity == "warning" else "information", markup=False
        )
        if then is not None:
            then()

    def _other_name(self, error: NameTakenError, then: Then | None) -> None:
        """The place is taken: another name, or over the file that is there."""
        answers = (QuestionOption("r", "replace the file"), QuestionOption("n", "choose another name"))

        def on_answer(key: str) -> None:
            if key == "r":
                self.save(then, replace=True)
            elif key == "n":
                self._ask_name(then, self._open.draft.name)

        ask(self._screen.app, QuestionDialog("Save the preset", f"{error.path} exists already.", answers), on_answer)

    def _ask_name(self, then: Then | None, name: str, prompt: str = "Name of the preset, as commands use it:") -> None:
        """Ask for a name, `name` unless another is typed, and save the draft under it."""
        draft = self._open.draft
        bundled = draft.path.stem if draft.bundled and draft.path is not None else ""

        def check(typed: str) -> str:
            try:
                draft.name = checked_name(typed)
            except UserError as error:
                return str(error)
            return ""

        ask(self._screen.app, Ask("Save the preset", prompt, name, check), lambda _: self._write(bundled, then))

    def rename(self) -> None:
        """Give it another name; what is not saved stays unsaved."""
        draft, before = self._open.draft, self._open.draft.name

        def check(name: str) -> str:
            try:
                draft.rename(name)
            except UserError as error:
                return str(error)
            return ""

        def on_name(name: str | None) -> None:
            if name is None or name == before:
                return
            if draft.path is None or draft.bundled:
                message = f"Ctrl+S saves it as {printable(name)}."
            else:
                self._host.preset_deleted(before)
                with suppress(UserError):  # the file may be wrong as it stands; the draft says how
                    preset = load_preset(draft.path)
                    self._host.preset_saved(PresetFile(key=name, path=str(draft.path), bundled=False, preset=preset))
                message = f"{printable(before)} is now {at_home(draft.path)}."
            self._open.refresh()
            self._screen.notify(message, title="Preset", markup=False)

        prompt = "New name of the preset, as commands use it:"
        self._screen.app.push_screen(Ask("Rename the preset", prompt, before, check), on_name)

    # --- back, and away ------------------------------------------------------------------------------------------

    def show_difference(self) -> None:
        """Show what differs from the saved text."""
        difference = self._open.draft.difference()
        if difference:
            self._screen.app.push_screen(Difference(f"Differences · {printable(self._open.draft.name)}", difference))
        else:
            self._screen.notify("No differences from the saved text.", timeout=3, markup=False)

    def revert(self) -> None:
        if not self._open.draft.difference():
            self._screen.notify("There are no changes to discard.", timeout=3, markup=False)
            return

        def discard() -> None:
            self._open.draft.revert()
            self._open.refresh()

        question = "Discard the changes? Ctrl+Z restores them."
        difference = self._open.draft.difference()
        dialog = QuestionDialog("Revert", question, (QuestionOption("y", "discard"),), difference)
        confirm(self._screen.app, dialog, discard)

    def delete(self) -> None:
        path = self._open.draft.path
        if self._open.draft.bundled or path is None:
            sentence = "is a bundled preset and cannot be deleted" if path is not None else "has no file yet"
            self._screen.notify(f"{printable(self._open.draft.name)} {sentence}.", markup=False)
            return
        question = f"Delete {at_home(path)}? Its text stays here until you close the editor, so it can be saved again."
        dialog = QuestionDialog("Delete the preset", question, (QuestionOption("y", "delete the file"),))
        confirm(self._screen.app, dialog, lambda: self._delete(path))

    def _delete(self, path: Path) -> None:
        try:
            self._open.draft.delete()
        except UserError as error:
            self._screen.notify(str(error), title="Preset", severity="error", markup=False)
            return
        self._host.preset_deleted(self._open.draft.name)
        self._open.refresh()
        self._screen.notify(f"{at_home(path)} is deleted.", title="Preset", markup=False)

    def leave(self) -> None:
        if self._screen.app.screen is self._screen:
            self._screen.app.pop_screen()
            self._host.preset_closed()

    @property
    def is_asking(self) -> bool:
        """Whether the question about what is not saved is on the screen now."""
        return self._is_asking

    def ask(self, then: Then) -> None:
        """Ask what becomes of what is not saved, then go on; at once where there is nothing."""
        if not self._open.draft.is_changed:
            then()
            return
        self._is_asking = True

        def on_answer(key: str | None) -> None:
            self._is_asking = False
            if key == "s":
                self.save(then)
            elif key == "d":
                then()

        question = f"{printable(self._open.draft.name)} is not saved."
        difference = self._open.draft.difference() if self._open.draft.path is not None else ""
        self._screen.app.push_screen(QuestionDialog("Unsaved changes", question, UNSAVED, difference), on_answer)
