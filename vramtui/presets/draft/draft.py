"""A preset while it is edited: from its text and from its form, with undo, and back to its file."""

import difflib
import re
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.models.named_files import Stamp, path_named, stamp_of
from vramtui.models.stores.local_models import find_model
from vramtui.presets import bundled_folder, config_dir
from vramtui.presets.draft.creation import as_toml, checked_name, text_of
from vramtui.presets.draft.edited_text import EditedText, TryOut
from vramtui.presets.form.types import FormGroup
from vramtui.presets.model_presets import preset_of
from vramtui.presets.reader import OpenedFile, PresetProblem, display_path, is_written, open_text
from vramtui.presets.toml.whole_files import NotDurableError, write_preset_text

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class NameTakenError(UserError):
    """A preset is to be saved where another file is: ask for another name, or save with `replace`."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{display_path(path)} exists already; choose another name")
        self.path = path


class ChangedOnDiskError(UserError):
    """The file is no longer what was opened: show the difference, then `take_disk`, `keep_mine`, or `replace`."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{display_path(path)} was changed by something else since it was opened")
        self.path = path


class Draft:
    """One preset while it is edited. What it says is read here; its text and form are changed through `edits`. Only
    `save` and `delete` change anything on the disk.

    Attributes:
        edits: the text, what it says, and its undo steps.

    Args:
        text: as it is to begin with.
        name: what commands call it by, a file's stem.
        path: its file; None where it has none yet.
        bundled: whether that file came with the program, and is saved into the person's own folder.
        try_out: what else a preset has to go through (an estimator); it raises UserError with a sentence that begins
            with the key it is about. It runs at each change.
        user_folder: where presets of one's own are kept; `config_dir()/presets` by default.
    """

    def __init__(
        self,
        text: str,
        name: str,
        *,
        path: Path | None = None,
        bundled: bool = False,
        try_out: TryOut | None = None,
        user_folder: Path | None = None,
    ) -> None:
        self.edits = EditedText(text, path.parent if path is not None else None, try_out)
        self.name = name
        self.path = path
        self.bundled = bundled
        self.saved_text = text if path is not None else ""
        self._first_text = text
        self._mark = ""
        self._stamp: Stamp | None = None
        self._user_folder = config_dir() / "presets" if user_folder is None else user_folder

    @classmethod
    def open(
        cls, preset_file: PresetFile, *, try_out: TryOut | None = None, user_folder: Path | None = None
    ) -> "Draft":
        """The draft of a preset that was found. A model's own file, which stands for a preset, makes a new one.

        Raises:
            UserError: the file cannot be read.
        """
        if not is_written(preset_file):
            name = name_for(preset_file.preset.name if preset_file.derived else preset_file.key)
            return cls.new(as_toml(preset_file.preset), name, try_out=try_out, user_folder=user_folder)
        return cls.at(Path(preset_file.path), bundled=preset_file.bundled, try_out=try_out, user_folder=user_folder)

    @classmethod
    def at(
        cls, path: Path, *, bundled: bool = False, try_out: TryOut | None = None, user_folder: Path | None = None
    ) -> "Draft":
        """The draft of the file at `path`, which need not be a preset that is right.

        Raises:
            UserError: the file cannot be read.
        """
        opened = open_text(path)
        bundled = bundled or path.resolve().is_relative_to(bundled_folder().resolve())
        draft = cls(opened.text, path.stem, path=path, bundled=bundled, try_out=try_out, user_folder=user_folder)
        draft._mark, draft._stamp = opened.mark, opened.stamp
        return draft

    @classmethod
    def new(cls, text: str, name: str, *, try_out: TryOut | None = None, user_folder: Path | None = None) -> "Draft":
        """A draft without a file; `save` puts it into the person's own folder under `name`."""
        return cls(text, name, try_out=try_out, user_folder=user_folder)

    @property
    def text(self) -> str:
        """The text as it is now."""
        return self.edits.text

    @property
    def folder(self) -> Path | None:
        """The preset's own, which model files are looked for from."""
        return self.edits.folder

    @property
    def preset(self) -> Preset | None:
        """The last one that was right; None where there has been none yet."""
        return self.edits.preset

    @property
    def is_current(self) -> bool:
        """Whether `preset` is what the text says."""
        return self.edits.is_current

    @property
    def problems(self) -> tuple[PresetProblem, ...]:
        """Everything that is wrong; see `EditedText.problems`."""
        return self.edits.problems

    @property
    def form(self) -> tuple[FormGroup, ...]:
        """The form as the text fills it."""
        return self.edits.form

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to save."""
        return self.text != self.saved_text or self.path is None

    def revert(self) -> None:
        """Back to what was saved, or to what a new one began with, as one step that can be undone."""
        self.edits.replace_text(self._first_text if self.path is None else self.saved_text)

    def difference(self) -> str:
        """A unified difference from the saved text; empty when nothing changed."""
        return difference_between(self.saved_text, self.text, "saved", "draft")

    def save(self, path: Path | None = None, *, replace: bool = False) -> Path:
        """Write the text, whole or not at all, to `path`, to its own file, or (a new or bundled one) to the person's
        own folder. Returns where it is now.

        Args:
            path: somewhere else than its own file.
            replace: also over another file, and over a file that something else changed.

        Raises:
            NameTakenError: another file is there.
            ChangedOnDiskError: its own file is no longer what was opened.
            NotDurableError: it is saved, but may not survive a power cut.
            UserError: the text is no preset, something typed cannot stand in it, the place is bundled, or it cannot be
                written; the sentence says which text stands in the file.
        """
        for problem in self.edits.refusals:
            raise UserError(problem.sentence)
        own = path is None and self.path is not None and not self.bundled
        target = path or (self.path if own and self.path is not None else self._place(self.name))
        same = self.path is not None and target.resolve() == self.path.resolve()
        if not same and not replace and (target.exists() or target.is_symlink()):
            raise NameTakenError(target)
        if same and not replace and self.changed_on_disk():
            raise ChangedOnDiskError(target)
        try:
            write_preset_text(target, self._mark + self.text)
        except NotDurableError:
            self._saved_at(target)
            raise
        self._saved_at(target)
        return target

    def _saved_at(self, target: Path) -> None:
        self.path, self.bundled, self.name = target, False, target.stem
        self.saved_text, self._stamp = self.text, stamp_of(target)
        self.edits.saved_in(target.parent)

    def rename(self, name: str) -> None:
        """Call it `name` from now on, and its file, where it has one of its own; a new or bundled one is saved so.

        Raises:
            NameTakenError: another file is there.
            UserError: `name` is none of a file, or its file cannot be renamed.
        """
        target = (
            self._place(name)
            if self.path is None or self.bundled
            else self.path.with_name(f"{checked_name(name)}.toml")
        )
        if target == self.path or name == self.name:
            return
        if target.exists() or target.is_symlink():
            raise NameTakenError(target)
        if self.path is not None and not self.bundled:
            try:
                self.path.rename(target)
            except OSError as error:
                raise UserError(f"{display_path(self.path)} cannot be renamed: {error.strerror}") from None
            self.path, self._stamp = target, stamp_of(target)
        self.name = name

    def delete(self) -> None:
        """Take its file away; the text stays, as that of a new preset.

        Raises:
            UserError: the file came with the program, or cannot be taken away.
        """
        if self.bundled:
            raise UserError(f"{printable(self.name)} is a bundled preset and cannot be deleted")
        if self.path is not None:
            try:
                self.path.unlink(missing_ok=True)
            except OSError as error:
                raise UserError(f"{display_path(self.path)} cannot be deleted: {error.strerror}") from None
        self.path, self.saved_text, self._stamp = None, "", None
        self._first_text = self.text

    def changed_on_disk(self) -> bool:
        """Whether the file is another one than what was opened or saved, or gone. One stat, where it is the same."""
        if self.path is None:
            return False
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return False
        if self.disk_text == self.saved_text:
            self._stamp = stamp
            return False
        return True

    @property
    def disk_text(self) -> str | None:
        """What the file says now; None where there is none or it cannot be read."""
        opened = self._opened()
        return opened.text if opened is not None else None

    def take_disk(self) -> None:
        """Take what the file says now for the text, as one step that can be undone. Nothing where it is gone."""
        opened = self._opened()
        if opened is None:
            return
        self.saved_text, self._mark, self._stamp = opened.text, opened.mark, opened.stamp
        self.edits.replace_text(opened.text)

    def keep_mine(self) -> None:
        """Keep the text, and know of what the file says now: the difference is from that, and `save` goes over it."""
        opened = self._opened()
        self.saved_text = opened.text if opened is not None else ""
        self._stamp = opened.stamp if opened is not None else None

    def _opened(self) -> OpenedFile | None:
        try:
            return open_text(self.path) if self.path is not None else None
        except UserError:
            return None

    def _place(self, name: str) -> Path:
        return self._user_folder / f"{checked_name(name)}.toml"


def difference_between(before: str, after: str, before_name: str, after_name: str) -> str:
    """A unified difference of two texts; empty when they are the same."""
    lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), before_name, after_name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def name_for(title: str) -> str:
    """A name that a preset's file may have, from any title."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in title).strip("-._")
    return name[:100] or "model"


def draft_from_model(name: str, *, try_out: TryOut | None = None, user_folder: Path | None = None) -> Draft:
    """A new draft from a model's file, a folder with one, or a model's name in a local store.

    Raises:
        UserError: it cannot be read, is damaged, or describes a model that is not known.
    """
    model = find_model(name)
    preset = preset_of(path_named(name)) if model is None else preset_of(model.path, model.name)
    return Draft.new(as_toml(preset), name_for(preset.name), try_out=try_out, user_folder=user_folder)


def draft_copy(
    preset_file: PresetFile, name: str, *, try_out: TryOut | None = None, user_folder: Path | None = None
) -> Draft:
    """A new draft called `name` with the text of a preset that was found, comments included.

    Raises:
        UserError: the file cannot be read, or `name` is none of a file.
    """
    return Draft.new(text_of(preset_file), checked_name(name), try_out=try_out, user_folder=user_folder)
