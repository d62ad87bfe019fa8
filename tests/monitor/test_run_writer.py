import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
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
# A run writer that writes until somebody ends it, and says how many jobs it has seen the last of.
ENDLESS = """
import sys, msgspec
from pathlib import Path
from tests.monitor.test_run_writer import RUN, HistoryRunWriter, RunHistory
keeper = HistoryRunWriter(lambda: RunHistory(Path(sys.argv[1])))
for number in range(100_000):
    run = msgspec.structs.replace(RUN, key=f"{sys.argv[2]}/{number}", pid=number, host=sys.argv[2])
    keeper.finish([run], 20.0)
    print(number, flush=True)
"""


def replaced(number: int, **changes: object) -> Run:
    return msgspec.structs.replace(RUN, key=f"key-{number}", pid=number, **changes)


def test_everything_handed_over_is_kept(tmp_path: Path) -> None:
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


def test_nothing_to_keep_makes_no_file(tmp_path: Path) -> None:
    HistoryRunWriter(lambda: RunHistory(tmp_path / FILE)).finish([], PATIENCE)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.slow
def test_killed_in_the_middle_the_history_stays_whole(tmp_path: Path) -> None:
    """Two dashboards write at once and are killed at moments left to chance; all that was kept is there."""
    path, chance = tmp_path / FILE, random.Random(7)
    told = 0
    for turn in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", ENDLESS, str(path), f"host-{turn}-{number}"],
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            for number in range(2)
        ]
        for writer in writers:
            writer.stdout.readline()
        time.sleep(chance.random() / 10)  # how far they get is what differs from turn to turn
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            told += 1 + len((writer.communicate()[0] or "").split())
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found = len(RunHistory(path).runs(limit=10**6))
    assert told <= found <= told + 2 * 3
