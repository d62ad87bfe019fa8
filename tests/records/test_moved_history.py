"""The history of an older version, which lay in the data folder: it is moved once, and no run is lost on the way."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples import a_run
from vramtui.cli.common.paths import run_history, state_dir, welcome_marker
from vramtui.core.base.errors import UserError
from vramtui.records.moved_history import move_history
from vramtui.records.run_history import FILE, RunHistory

KEYS = ("a", "b", "c")
# Ends the process, as `kill -9` would, at the n-th of the calls by which files come and go.
CRASH = """
import os, sys
from pathlib import Path
from vramtui.records.moved_history import move_history
left = int(sys.argv[3])
def ending(call):
    def wrapped(*given, **named):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        return call(*given, **named)
    return wrapped
os.fsync, Path.rename, Path.unlink, Path.mkdir = map(ending, (os.fsync, Path.rename, Path.unlink, Path.mkdir))
move_history(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("VRAMTUI_DATA_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def former(home: Path) -> Path:
    """What version 0.2 left."""
    path = home / ".local/share/vramtui" / FILE
    fill(path)
    return path


def fill(path: Path, keys: tuple[str, ...] = KEYS) -> None:
    history = RunHistory(path)
    for key in keys:
        history.keep(a_run(key=key, pid=ord(key), ended_at=2000.0, ending="exited"))


def kept(path: Path) -> list[str]:
    return sorted(stored.run.key for stored in RunHistory(path).runs())


def test_it_is_moved_at_the_first_look(former: Path, home: Path) -> None:
    history = run_history()
    assert history.path == home / ".local/state/vramtui" / FILE
    assert kept(history.path) == list(KEYS)
    assert stat.S_IMODE(history.path.stat().st_mode) == 0o600
    assert list(former.parent.iterdir()) == []
    assert [path.name for path in history.path.parent.iterdir()] == [FILE]
    assert kept(run_history().path) == list(KEYS)


def test_the_numbers_of_runs_stay(former: Path) -> None:
    before = [(stored.id, stored.run.key) for stored in RunHistory(former).runs()]
    assert [(stored.id, stored.run.key) for stored in run_history().runs()] == before


def test_what_an_older_version_writes_afterwards_is_taken_over(former: Path) -> None:
    run_history()
    fill(former, ("d",))
    RunHistory(former).keep(a_run(key="a", pid=ord("a"), ended_at=2000.0, ending="failed"))
    history = run_history()
    assert kept(history.path) == [*KEYS, "d"]
    assert not former.exists()


@pytest.mark.parametrize("step", range(1, 10))
def test_a_crash_at_any_step_loses_no_run(former: Path, step: int) -> None:
    present = state_dir() / FILE
    words = [sys.executable, "-c", CRASH, str(former), str(present), str(step)]
    ended = subprocess.run(words, check=False, timeout=120).returncode
    assert ended in {0, 9}
    assert ended == 9 or step > 6
    history = run_history()
    assert kept(history.path) == list(KEYS)
    assert not former.exists()


def test_a_history_that_cannot_be_moved_stays_in_use(former: Path, home: Path) -> None:
    (home / ".local/state").write_text("no folder")
    history = run_history()
    assert history.path == former
    assert kept(history.path) == list(KEYS)


def test_a_damaged_database_stays_where_it_is(former: Path) -> None:
    former.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    text = former.read_bytes()
    assert run_history().path == former
    assert former.read_bytes() == text


def test_with_a_damaged_database_moved_elsewhere_as_it_says_a_new_one_is_begun(former: Path) -> None:
    former.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    with pytest.raises(UserError, match="with it and its -wal moved elsewhere a new one is begun"):
        run_history().runs()
    for path in (former, Path(f"{former}-wal")):
        if path.exists():
            path.rename(former.parent.parent / path.name)
    fill(run_history().path)
    assert run_history().path == state_dir() / FILE
    assert kept(run_history().path) == list(KEYS)


def test_two_programs_at_once_move_it_once(former: Path) -> None:
    present = state_dir() / FILE
    words = [sys.executable, "-c", CRASH, str(former), str(present), "99"]
    both = [subprocess.Popen(words) for _ in range(2)]
    assert [one.wait(120) for one in both] == [0, 0]
    assert kept(present) == list(KEYS)
    assert not former.exists()


def test_damaged_runs_go_along(former: Path) -> None:
    present = state_dir() / FILE
    fill(present, ("z",))
    with RunHistory(former).locked() as database:
        database.execute("UPDATE runs SET document = x'00' WHERE key = 'b'")
    assert move_history(former, present) == present
    history = RunHistory(present)
    assert kept(present) == ["a", "c", "z"]
    history.runs()
    assert len(history.damaged) == 1


def test_the_welcome_is_remembered(home: Path) -> None:
    data = home / ".local/share/vramtui"
    data.mkdir(parents=True)
    (data / "welcomed").touch()
    assert welcome_marker().exists()
    assert list(data.iterdir()) == []


def test_one_folder_for_all_moves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_DATA_DIR", str(home / "all"))
    fill(home / "all" / FILE)
    assert kept(run_history().path) == list(KEYS)
    assert run_history().path == home / "all" / FILE


def test_a_relative_folder_of_xdg_is_not_heeded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert state_dir() == home / ".local/state/vramtui"
