"""The editor and its file: save, rename, revert, delete, leave; and changes of other programs."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from textual.screen import Screen

from vramtui.app.editor.dialogs import Ask, Difference, QuestionDialog, QuestionOption, confirm
from vramtui.app.editor.open_draft import OpenDraft
from vramtui.app.ui.dialog import ask
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.draft.creation import checked_name
from vramtui.presets.draft.draft import ChangedOnDiskError, Draft, NameTakenError, difference_between
from vramtui.presets.reader import load_preset
from vramtui.presets.whole_files import NotDurableError

Then = Callable[[], None]
UNSAVED = (QuestionOption("s", "save it"), QuestionOption("d", "discard the changes"))


def at_home(path: Path) -> str:
    """Return a path safe to show, with `~` for the home folder."""
    home = Path.home()
    return printable(f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path))


class FileActions:
    """Save, rename, revert, delete and leave. Unsaved changes are lost only if the user confirms it.

    Attributes:
        is_asking: whether the question about unsaved changes is on the screen.

    Args:
        screen: shows questions and messages.
        opened: what is saved.
    """

    __slots__ = ("_open", "_screen", "is_asking")

    def __init__(self, screen: Screen[None], opened: OpenDraft) -> None:
        self._screen = screen
        self._open = opened
        self.is_asking = False

    @property
    def _draft(self) -> Draft:
        return self._open.draft

    def _say(self, message: str) -> None:
        self._screen.notify(message, title="Preset", markup=False)

    # --- saving --------------------------------------------------------------------------------------------------

    def save(self, then: Then | None = None, *, replace: bool = False) -> None:
        """Save the draft and go on with `then`. A bundled preset asks for a name first."""
        bundled = self._draft.path.stem if self._draft.bundled and self._draft.path is not None else ""
        if self._draft.name == bundled and not replace and not self._draft.refused:
            prompt = f"Name of your own copy. The name {printable(bundled)} overrides the bundled preset."
            self._ask_name(then, f"{bundled}-mine", prompt)
        else:
            self._write(bundled, then, replace=replace)

    def _write(self, bundled: str, then: Then | None, *, replace: bool = False) -> None:
        """Save the draft under its name. `bundled` is the name of the bundled preset that it was."""
        draft, app, warning = self._draft, self._screen.app, ""
        try:
            path = draft.save(replace=replace)
        except NameTakenError as error:
            answers = (QuestionOption("r", "replace the file"), QuestionOption("n", "choose another name"))

            def on_answer(key: str) -> None:
                if key == "r":
                    self.save(then, replace=True)
                elif key == "n":
                    self._ask_name(then, draft.name)

            ask(app, QuestionDialog("Save the preset", f"{error.path} exists already.", answers), on_answer)
            return
        except ChangedOnDiskError:
            self._ask_whose(lambda: self.save(then, replace=True))
            return
        except NotDurableError as error:
            path, warning = draft.path or Path(draft.name), str(error)
        except UserError as error:
            app.clear_notifications()
            self._screen.notify(f"Not saved: {error}", title="Preset", severity="error", timeout=10, markup=False)
            return
        self._open.host.preset_saved(
            PresetFile(key=draft.name, path=str(path), bundled=False, preset=load_preset(path))
        )
        self._open.saved()
        message = f"Saved as {at_home(path)}"
        if bundled == path.stem:
            message = f"{printable(bundled)} is your own preset now and overrides the bundled one."
            message += f" Delete {at_home(path)} to undo this."
        elif bundled:
            message += f"; the bundled {printable(bundled)} is unchanged."
        app.clear_notifications()  # a failure before this one is over
        self._screen.notify(
            warning or message, title="Preset", severity="warning" if warning else "information", markup=False
        )
        if then is not None:
            then()

    def _ask_name(self, then: Then | None, name: str, prompt: str = "Name of the preset, as commands use it:") -> None:
        """Ask for a name and save the draft under it."""
        draft = self._draft
        bundled = draft.path.stem if draft.bundled and draft.path is not None else ""

        def check(typed: str) -> str:
            try:
                draft.name = checked_name(typed)
            except UserError as error:
                return str(error)
            return ""

        ask(self._screen.app, Ask("Save the preset", prompt, name, check), lambda _: self._write(bundled, then))

    def rename(self) -> None:
        """Give the preset another name. Unsaved changes stay unsaved."""
        draft, before = self._draft, self._draft.name

        def check(name: str) -> str:
            try:
                draft.rename(name)
            except UserError as error:
                return str(error)
            return ""

        def on_name(name: str) -> None:
            if name == before:
                return
            message = f"Ctrl+S saves it as {printable(name)}."
            if draft.path is not None and not draft.bundled:
                self._open.host.preset_deleted(before)
                with suppress(UserError):  # the file may be wrong; the draft says how
                    preset = load_preset(draft.path)
                    self._open.host.preset_saved(
                        PresetFile(key=name, path=str(draft.path), bundled=False, preset=preset)
                    )
                message = f"{printable(before)} is now {at_home(draft.path)}."
            self._open.refresh()
            self._say(message)

        prompt = "New name of the preset, as commands use it:"
        ask(self._screen.app, Ask("Rename the preset", prompt, before, check), on_name)

    # --- changes of other programs -------------------------------------------------------------------------------

    def look(self) -> None:
        """If another program changed the file, take its text, or ask if there are unsaved changes."""
        path = self._draft.path
        if path is None or self._screen.app.screen is not self._screen or not self._draft.changed_on_disk():
            return
        name = at_home(path)
        if self._draft.disk_text is None:
            self._draft.keep_mine()
            self._screen.notify(f"{name} was deleted; saving writes it again.", severity="warning", markup=False)
            self._open.refresh()
        elif self._draft.is_unsaved:
            self._ask_whose(None)
        else:
            self._take_theirs()
            self._screen.notify(f"{name} was changed by another program; this is its new text.", markup=False)

    def _ask_whose(self, then: Then | None) -> None:
        """Ask which text to keep. Without an answer nothing changes, and it is asked again."""
        answers = (
            QuestionOption("t", "use the file's version; Ctrl+Z restores yours"),
            QuestionOption("k", "keep mine; saving overwrites the file"),
        )

        def on_answer(key: str) -> None:
            if key == "t":
                self._take_theirs()
            elif key == "k":
                self._draft.keep_mine()
                self._open.saved()
                if then is not None:
                    then()

        self._screen.app.clear_notifications()  # they would cover the answers
        name = at_home(self._draft.path) if self._draft.path is not None else ""
        question = f"{name} was changed by another program. From yours to the file's:"
        difference = difference_between(self._draft.text, self._draft.disk_text or "", "yours", "theirs")
        ask(self._screen.app, QuestionDialog("Changed on disk", question, answers, difference), on_answer)

    def _take_theirs(self) -> None:
        draft = self._draft
        draft.take_disk()
        self._open.saved()
        if draft.is_current and draft.preset is not None and draft.path is not None:
            file = PresetFile(key=draft.name, path=str(draft.path), bundled=draft.bundled, preset=draft.preset)
            self._open.host.preset_saved(file)

    # --- back, and away ------------------------------------------------------------------------------------------

    def show_difference(self) -> None:
        """Show the difference from the saved text."""
        difference = self._draft.difference()
        if difference:
            self._screen.app.push_screen(Difference(f"Differences · {printable(self._draft.name)}", difference))
        else:
            self._screen.notify("No differences from the saved text.", timeout=3, markup=False)

    def revert(self) -> None:
        difference = self._draft.difference()
        if not difference:
            self._screen.notify("There are no changes to discard.", timeout=3, markup=False)
            return

        def discard() -> None:
            self._draft.revert()
            self._open.refresh()

        question = "Discard the changes? Ctrl+Z restores them."
        dialog = QuestionDialog("Revert", question, (QuestionOption("y", "discard"),), difference)
        confirm(self._screen.app, dialog, discard)

    def delete(self) -> None:
        path = self._draft.path
        if self._draft.bundled or path is None:
            sentence = "is a bundled preset and cannot be deleted" if path is not None else "has no file yet"
            self._screen.notify(f"{printable(self._draft.name)} {sentence}.", markup=False)
            return

        def delete() -> None:
            try:
                self._draft.delete()
            except UserError as error:
                self._screen.notify(str(error), title="Preset", severity="error", markup=False)
                return
            self._open.host.preset_deleted(self._draft.name)
            self._open.refresh()
            self._say(f"{at_home(path)} is deleted.")

        question = f"Delete {at_home(path)}? Its text stays here until you close the editor, so it can be saved again."
        dialog = QuestionDialog("Delete the preset", question, (QuestionOption("y", "delete the file"),))
        confirm(self._screen.app, dialog, delete)

    def leave(self) -> None:
        if self._screen.app.screen is self._screen:
            self._screen.app.pop_screen()
            self._open.host.preset_closed()

    def ask(self, then: Then) -> None:
        """Ask about unsaved changes, then go on; at once if there are none."""
        self._draft.end_step()
        if not self._draft.is_unsaved:
            then()
            return
        self.is_asking = True

        def on_answer(key: str | None) -> None:
            self.is_asking = False
            if key == "s":
                self.save(then)
            elif key == "d":
                then()

        question = f"{printable(self._draft.name)} is not saved."
        difference = self._draft.difference() if self._draft.path is not None else ""
        self._screen.app.push_screen(QuestionDialog("Unsaved changes", question, UNSAVED, difference), on_answer)
