import resource
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tests.examples import a_run
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.runs.run import Run, spreads
from vramtui.records.run_history import VERSION, RunHistory

GIB = 1 << 30
RUN = a_run(key="gpu01|GPU-0|4213|100.0", started_at=100.0, run_kind="train", workload={"run": {"batch_size": 8}})


def another(number: int, **changes: object) -> Run:
    return msgspec.structs.replace(RUN, key=f"key-{number}", pid=number, started_at=100.0 + number, **changes)


def test_there_and_back_and_the_newer_word_takes_the_older_ones_place(tmp_path: Path) -> None:
    history = RunHistory(tmp_path / "new" / "history.sqlite3")
    assert history.runs() == ()
    history.keep(RUN)
    (kept,) = history.runs()
    assert kept.run == RUN
    assert history.run(kept.id) == kept
    assert kept.run.error == pytest.approx(-0.05)
    history = RunHistory(tmp_path / "history.sqlite3")
    history.keep(RUN)
    history.keep(msgspec.structs.replace(RUN, ended_at=200.0, ending="exited", exit_code=0))
    (kept,) = history.runs()
    assert (kept.run.ended_at, kept.run.ending) == (200.0, "exited")


def test_a_dashboard_beside_the_program_that_started_the_job(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    probed = msgspec.structs.replace(RUN, peak_how="probe", observed=Ledger(reserved=GIB, process=2 * GIB))
    watched = msgspec.structs.replace(RUN, key="another", source="watched", started_at=100.4)
    for run in (watched, msgspec.structs.replace(probed, ended_at=300.0, ending="failed", exit_code=1), watched):
        RunHistory(path).keep(run)
    (kept,) = RunHistory(path).runs()
    assert (kept.run.key, kept.run.source, kept.run.peak_how, kept.run.exit_code) == ("another", "run", "probe", 1)
    RunHistory(path).keep(msgspec.structs.replace(watched, started_at=400.0, key="the pid again"))
    assert len(RunHistory(path).runs()) == 2
    assert path.stat().st_mode & 0o077 == 0


def test_the_latest_come_first_and_errors_go_by_method_and_kind(tmp_path: Path) -> None:
    history = RunHistory(tmp_path / "history.sqlite3")
    for number in (2, 1, 3):
        history.keep(another(number, preset="a" if number == 2 else "b"))
    assert [kept.run.started_at for kept in history.runs()] == [103.0, 102.0, 101.0]
    assert [kept.run.started_at for kept in history.runs("b")] == [103.0, 101.0]
    assert len(history.runs(limit=1)) == 1
    (gone,) = history.runs("a")
    assert history.forget(gone.id)
    assert not history.forget(gone.id)
    with pytest.raises(UserError, match=f"holds no run {gone.id}"):
        history.run(gone.id)
    ended = [
        another(number, ended_at=1.0, ending="exited", observed=Ledger(process=(18 + number) * GIB))
        for number in range(3)
    ]
    broken_off = another(4, ended_at=1.0, ending="out_of_memory")
    (spread,) = spreads((*ended, RUN, broken_off))
    assert (spread.method, spread.model_kind, spread.runs) == ("analytic", "transformer", 3)
    assert (spread.lowest, spread.median, spread.highest) == pytest.approx((-0.1, -0.05, 0.0))


def test_many_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    with ThreadPoolExecutor(8) as crew:
        list(crew.map(lambda number: RunHistory(path).keep(another(number)), range(60)))
    assert len(RunHistory(path).runs()) == 60


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda path: path.write_bytes(b"no database at all" * 100), "file is not a database"),
    (lambda path: path.mkdir(), "unable to open"),
    (lambda path: _set_version(path, VERSION + 1), "made by another version"),
])  # fmt: skip
def test_a_file_that_is_no_history_is_left_alone(spoil: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    assert callable(spoil)
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(UserError, match=said):
        RunHistory(path).keep(RUN)
    with pytest.raises(UserError, match=said):
        RunHistory(path).runs()
    assert (path.read_bytes() if path.is_file() else b"") == before or said.startswith("made")


def _set_version(path: Path, version: int) -> None:
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {version}")
    database.close()


def test_a_full_disk_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.sqlite3"
    RunHistory(path).keep(RUN)
    connect = sqlite3.connect

    def full(*arguments: object, **named: object) -> sqlite3.Connection:
        database = connect(*arguments, **named)  # type: ignore[call-overload]  # whatever it was called with
        database.execute("PRAGMA max_page_count = 1")  # SQLite then takes the disk to hold no more than there is
        assert isinstance(database, sqlite3.Connection)
        return database

    large = another(1, values=tuple(range(10**9, 10**9 + 10_000)))
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", full)
        with pytest.raises(UserError, match="full"):
            RunHistory(path).keep(large)
    assert [kept.run for kept in RunHistory(path).runs()] == [RUN]
    RunHistory(path).keep(large)
    assert len(RunHistory(path).runs()) == 2


@contextmanager
def _no_room() -> Iterator[None]:
    """No file can grow: what a full disk does to SQLite's files beside its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_does_not_hide_what_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    RunHistory(path).keep(RUN)
    with _no_room():
        (kept,) = RunHistory(path).runs()
        assert kept.run == RUN
        assert RunHistory(path).run(kept.id) == kept
        with pytest.raises(UserError, match="cannot be used: "):
            RunHistory(path).keep(another(1))
        assert [one.run for one in RunHistory(path).runs()] == [RUN]
    RunHistory(path).keep(another(1))
    assert len(RunHistory(path).runs()) == 2


def test_what_somebody_writes_to_is_not_read_past_them(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    RunHistory(path).keep(RUN)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("UPDATE runs SET preset = 'another'")
        writer.commit()  # it stands in the file beside it
        assert Path(f"{path}-wal").stat().st_size > 0
        left = tmp_path / "left"  # as where the writer was killed
        left.mkdir()
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(tmp_path / name, left)
    with _no_room(), pytest.raises(UserError, match="cannot be used: "):
        RunHistory(left / path.name).runs()
    assert len(RunHistory(left / path.name).runs()) == 1


def test_a_full_disk_is_called_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.sqlite3"
    RunHistory(path).keep(RUN)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with _no_room(), pytest.raises(UserError, match="the disk that holds it is full"):
        RunHistory(path).keep(another(1))


def test_a_figure_beyond_reason_is_a_sentence_and_odd_names_are_kept_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be used"):
        RunHistory(tmp_path / "h").keep(another(1, predicted=Ledger(process=1 << 70)))
    history = RunHistory(tmp_path / "h")
    odd = another(1, preset="\udcff", command="\udcff", host="\udcff", gpu_uuid="\udcff", method="\udcff")
    for _ in range(2):
        history.keep(odd)
    assert len(history.runs()) == 1


@pytest.mark.parametrize(("document", "why"), [(b"{", "Input data was truncated"), (5, "it is not text")])
def test_a_damaged_run_is_named(tmp_path: Path, document: object, why: str) -> None:
    path = tmp_path / "history.sqlite3"
    RunHistory(path).keep(RUN)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE runs SET document = ?", (document,))
    database.close()
    history = RunHistory(path)
    assert history.runs() == ()
    (sentence,) = history.damaged
    assert sentence == f"run 1 is damaged in {path}: {why}; `vramtui history --forget 1` removes it"
    with pytest.raises(UserError, match="run 1 is damaged"):
        history.run(1)
