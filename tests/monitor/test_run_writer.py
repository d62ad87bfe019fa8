import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.examples import a_run
from vramtui.core.base.errors import UserError
from vramtui.core.runs.run import Run
from vramtui.monitor.writers import HistoryRunWriter
from vramtui.records.run_history import FILE, RunHistory

PATIENCE = 60.0
RUN = a_run(key="h/GPU-0/1/100", source="watched", host="h", pid=1, started_at=100.0)


def replaced(number: int, **changes: object) -> Run:
    return msgspec.structs.replace(RUN, key=f"key-{number}", pid=number, **changes)


def test_everything_handed_over_is_kept_and_nothing_makes_no_file(tmp_path: Path) -> None:
    HistoryRunWriter(lambda: RunHistory(tmp_path / FILE)).finish([], PATIENCE)
    assert not list(tmp_path.iterdir())
    history = RunHistory(tmp_path / FILE)
    keeper = HistoryRunWriter(lambda: history)
    keeper.keep([replaced(1), replaced(2)])
    keeper.keep([replaced(1, ended_at=200.0, ending="exited")])
    keeper.finish([replaced(3)], PATIENCE)
    assert keeper.problem == ""
    kept = {kept.run.pid: kept.run for kept in history.runs()}
    assert sorted(kept) == [1, 2, 3]
    assert (kept[1].ending, kept[2].ending) == ("exited", "running")
    assert kept[3].versions["vramtui"]


def test_what_could_not_be_written_is_said_and_tried_again(tmp_path: Path) -> None:
    class Full(RunHistory):
        full = True

        def keep(self, run: Run) -> None:
            if self.full:
                raise UserError("the history cannot be used: database or disk is full")
            super().keep(run)

    history = Full(tmp_path / FILE)
    keeper = HistoryRunWriter(lambda: history)
    keeper.finish([replaced(1), replaced(2)], PATIENCE)
    assert keeper.problem == "the history cannot be used: database or disk is full"
    history.full = False
    keeper.finish([replaced(1, seen_until=300.0)], PATIENCE)
    assert keeper.problem == ""
    assert {kept.run.pid: kept.run.seen_until for kept in history.runs()} == {1: 300.0, 2: None}


@pytest.mark.skipif(os.getuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    keeper = HistoryRunWriter(lambda: RunHistory(tmp_path / FILE))
    keeper.finish([RUN], PATIENCE)
    assert "cannot be used" in keeper.problem


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    keeper = HistoryRunWriter(lambda: RunHistory(tmp_path / "file" / FILE))
    keeper.finish([RUN], PATIENCE)
    assert "cannot be used" in keeper.problem


def test_a_locked_history_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.records.run_history.BUSY_FOR", 0.05)
    history = RunHistory(tmp_path / FILE)
    history.keep(replaced(0))
    keeper = HistoryRunWriter(lambda: history)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        keeper.finish([RUN], PATIENCE)
        assert "locked" in keeper.problem
        other.execute("ROLLBACK")
    keeper.finish([], PATIENCE)
    assert keeper.problem == ""
    assert len(history.runs()) == 2
