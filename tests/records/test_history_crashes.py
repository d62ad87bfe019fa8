"""The history after a kill at any write: the runs of before or those of after, never neither.

SQLite in WAL mode appends to one file until it copies pages into the other, so what a kill leaves is a beginning of the
one, or the other with some of the pages copied and the log whole. Both are made here for every place.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.examples import a_run
from vramtui.records.run_history import RunHistory

RUN = a_run(key="gpu01|GPU-0|4213|100.0", started_at=100.0, run_kind="train", workload={"run": {"batch_size": 8}})
BEFORE = tuple(msgspec.structs.replace(RUN, key=f"key-{n}", pid=n, started_at=100.0 + n) for n in range(3))
AFTER = (*BEFORE, msgspec.structs.replace(RUN, key="key-9", pid=9, started_at=200.0))
PAGE = 4096


def keys(path: Path) -> set[str]:
    return {stored.run.key for stored in RunHistory(path).runs()}


OLD, NEW = ({run.key for run in runs} for runs in (BEFORE, AFTER))


def filled(path: Path) -> Path:
    history = RunHistory(path)
    for run in BEFORE:
        history.keep(run)
    return path


class Disk:
    def __init__(self, path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.folder = path, folder
        self.moments: list[tuple[bytes, bytes]] = []
        connect = sqlite3.connect

        def connected(*given: Any, **options: Any) -> sqlite3.Connection:
            database: sqlite3.Connection = connect(*given, **options)
            database.set_trace_callback(lambda _statement: self.look())
            return database

        monkeypatch.setattr(sqlite3, "connect", connected)

    def look(self) -> None:
        log = self.path.with_name(f"{self.path.name}-wal")
        moment = (self.path.read_bytes(), log.read_bytes() if log.exists() else b"")
        if not self.moments or moment != self.moments[-1]:
            self.moments.append(moment)

    def left(self, database: bytes, log: bytes) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        path = self.folder / self.path.name
        path.write_bytes(database)
        path.with_name(f"{path.name}-wal").write_bytes(log)
        return path


def written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    path = filled(folder / "history.sqlite3")
    with monkeypatch.context() as patched:
        disk = Disk(path, folder / "left", patched)
        # A reader that stays keeps the log from being copied back, so that all of it can be cut.
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM runs").fetchone()
            RunHistory(path).keep(AFTER[-1])
            disk.look()
    return disk


def test_a_kill_at_any_statement_and_any_place_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = written(tmp_path, monkeypatch)
    database, log = disk.moments[-1]
    assert len(log) > PAGE
    seen = set()
    for kept in (*disk.moments, *((database, log[:length]) for length in (*range(0, len(log), 997), len(log)))):
        found = keys(disk.left(*kept))
        assert found in (OLD, NEW)
        seen.add(frozenset(found))
    assert seen == {frozenset(OLD), frozenset(NEW)}


def test_a_kill_while_the_log_is_copied_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = written(tmp_path, monkeypatch)
    old, log = disk.moments[-1]
    RunHistory(disk.path).runs()  # the last one to close copies it back
    new = disk.path.read_bytes()
    assert len(new) % PAGE == 0
    for copied in range(0, len(new) + 1, PAGE // 2):  # in the middle of a page too
        assert keys(disk.left(new[:copied] + old[copied:], log)) == NEW


def test_a_kill_while_a_history_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        disk = Disk(tmp_path / "history.sqlite3", tmp_path / "left", patched)
        RunHistory(disk.path).keep(RUN)
    assert len(disk.moments) >= 2
    for moment in disk.moments:
        left = disk.left(*moment)
        assert keys(left) <= {RUN.key}
        RunHistory(left).keep(RUN)  # whatever was left can be gone on with
        assert keys(left) == {RUN.key}
