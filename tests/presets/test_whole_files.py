import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples import SMALL
from vramtui.core.base.errors import UserError
from vramtui.presets import whole_files
from vramtui.presets.draft import Draft
from vramtui.presets.library import PresetLibrary
from vramtui.presets.whole_files import NotDurableError, write_preset_text

NEW = SMALL.replace("batch_size = 2", "batch_size = 48")
STEPS = ("makedirs", "stat", "open", "write", "fchown", "fchmod", "fsync", "close", "replace", "unlink")


class FaultyOs:
    """`os`, whose calls are counted; at the one numbered `at` something happens instead."""

    def __init__(self, at: int = -1, fault: Callable[[str], Any] | None = None, *, for_good: bool = False) -> None:
        self.called: list[str] = []
        self._at = at
        self._fault = fault
        self._for_good = for_good

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in STEPS:
            return real

        def call(*args: Any, **options: Any) -> Any:
            number = len(self.called)
            self.called.append(name)
            hit = number >= self._at if self._for_good else number == self._at
            if hit and self._at >= 0 and self._fault is not None:
                self._fault(name)
            return real(*args, **options)

        return call


def _failing(code: int) -> Callable[[str], None]:
    def fail(_name: str) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def _calls(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    faulty = FaultyOs()
    with monkeypatch.context() as patch:
        patch.setattr(whole_files, "os", faulty)
        write_preset_text(path, NEW)
    return faulty.called


@pytest.fixture
def preset(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "presets" / "small.toml"
    path.parent.mkdir()
    path.write_text(SMALL)
    path.chmod(0o640)
    yield path
    assert path.read_text() in {SMALL, NEW}
    assert path.stat().st_mode & 0o777 == 0o640
    assert PresetLibrary(path.parent, path.parent / "none").keys() == ("small",)


def test_every_step_is_taken_in_its_order(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = ["makedirs", "stat", "open", "write", "fchown", "fchmod", "fsync", "close", "replace"]
    assert _calls(preset, monkeypatch) == [*steps, "open", "fsync", "close"]
    assert preset.read_text() == NEW


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_one_step_fails(preset: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    calls = _calls(preset, monkeypatch)
    for at, name in enumerate(calls):
        preset.write_text(SMALL)
        with monkeypatch.context() as patch:
            patch.setattr(whole_files, "os", FaultyOs(at, _failing(code)))
            error = None
            try:
                write_preset_text(preset, NEW)
            except UserError as raised:
                error = raised
        if name == "fchown" and code == errno.EACCES:  # another's file becomes one's own
            assert error is None
        elif at > calls.index("replace"):
            assert isinstance(error, NotDurableError)
            assert "small.toml has the new text, but the disk did not confirm it" in str(error)
        else:
            assert f"small.toml cannot be written: {os.strerror(code)}; it has its old text" in str(error)
        new = error is None or isinstance(error, NotDurableError)
        assert preset.read_text() == (NEW if new else SMALL)
        assert [entry.name for entry in preset.parent.iterdir()] == ["small.toml"], name


def test_a_new_file_is_there_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "small.toml"
    calls = _calls(path, monkeypatch)
    for at in range(calls.index("replace") + 1):
        path.unlink()
        with monkeypatch.context() as patch:
            patch.setattr(whole_files, "os", FaultyOs(at, _failing(errno.ENOSPC)))
            with pytest.raises(UserError, match=r"No space left on device; the file still does not exist"):
                write_preset_text(path, NEW)
        assert list(path.parent.iterdir()) == []
        path.touch()


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
def test_a_signal_only_delays(preset: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    at = _calls(preset, monkeypatch).index(step)
    preset.write_text(SMALL)
    monkeypatch.setattr(whole_files, "os", FaultyOs(at, _failing(errno.EINTR)))
    write_preset_text(preset, NEW)
    assert preset.read_text() == NEW


class _Dribbling(FaultyOs):
    """Takes a few bytes at a time, and none once `room` is used up."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, handle: int, content: memoryview) -> int:
        if self._room <= 0:
            _failing(errno.ENOSPC)("write")
        written = os.write(handle, content[: min(7, self._room)])
        self._room -= written
        return written


@pytest.mark.parametrize("room", [1000, 100, 7, 1, 0])
def test_partial_writes(preset: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    monkeypatch.setattr(whole_files, "os", _Dribbling(room))
    if room > len(NEW):
        write_preset_text(preset, NEW)
        assert preset.read_text() == NEW
        return
    with pytest.raises(UserError, match=r"No space left on device; it has its old text"):
        write_preset_text(preset, NEW)
    assert preset.read_text() == SMALL
    assert [entry.name for entry in preset.parent.iterdir()] == ["small.toml"]


def test_what_cannot_be_cleaned_up_is_named(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = _calls(preset, monkeypatch).index("fsync")
    preset.write_text(SMALL)
    monkeypatch.setattr(whole_files, "os", FaultyOs(at, _failing(errno.EROFS), for_good=True))
    with pytest.raises(UserError, match=r"it has its old text; \.small\.toml\.[0-9a-f]{8}\.tmp was left behind"):
        write_preset_text(preset, NEW)


def test_a_rename_that_fails_after_the_fact(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(FaultyOs):
        def replace(self, source: Path, target: Path) -> None:
            source.replace(target)
            _failing(errno.EIO)("replace")

    monkeypatch.setattr(whole_files, "os", Late())
    with pytest.raises(UserError, match=r"the new text is in it nevertheless"):
        write_preset_text(preset, NEW)
    assert preset.read_text() == NEW


def test_a_folder_that_cannot_be_synced_is_no_fault(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = len(_calls(preset, monkeypatch)) - 2
    monkeypatch.setattr(whole_files, "os", FaultyOs(at, _failing(errno.EINVAL)))
    write_preset_text(preset, SMALL)
    assert preset.read_text() == SMALL


def test_a_link_stays_one(preset: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "linked.toml"
    link.parent.mkdir()
    link.symlink_to(preset)
    write_preset_text(link, NEW)
    assert link.is_symlink()
    assert preset.read_text() == NEW
    assert [entry.name for entry in link.parent.iterdir()] == ["linked.toml"]
    dangling = tmp_path / "dangling.toml"
    dangling.symlink_to(tmp_path / "far" / "target.toml")
    write_preset_text(dangling, NEW)
    assert dangling.is_symlink()
    assert (tmp_path / "far" / "target.toml").read_text() == NEW
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    with pytest.raises(UserError, match="cannot be written"):
        write_preset_text(loop, NEW)


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_preset_text(tmp_path / "small.toml", NEW)
    finally:
        os.umask(before)
    assert (tmp_path / "small.toml").stat().st_mode & 0o777 == 0o640


def test_a_draft_knows_that_it_was_saved_after_all(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = len(_calls(preset, monkeypatch)) - 2
    draft = Draft.at(preset)
    draft.set_value("run.batch_size", "2")
    monkeypatch.setattr(whole_files, "os", FaultyOs(at, _failing(errno.EIO)))
    with pytest.raises(NotDurableError):
        draft.save()
    assert not draft.is_changed
    assert not draft.changed_on_disk()


def test_a_draft_that_could_not_be_saved_is_kept(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft.at(preset)
    draft.set_value("run.batch_size", "48")
    monkeypatch.setattr(whole_files, "os", FaultyOs(3, _failing(errno.ENOSPC)))
    with pytest.raises(UserError, match="it has its old text"):
        draft.save()
    assert draft.is_changed
    assert draft.text == NEW
    monkeypatch.undo()
    assert draft.save() == preset
    assert preset.read_text() == NEW
