import time
from pathlib import Path

import msgspec
import pytest

from vramtui.cli.common.demo_jobs import demo_runs
from vramtui.cli.dashboard.services import DemoPast, PastRuns, SnapshotSaver, past_runs
from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import SnapshotSettings
from vramtui.records.run_history import FILE, RunHistory


def chosen(folder: Path, *formats: str) -> SnapshotSaver:
    settings = msgspec.convert({"folder": str(folder), "formats": formats or ("md",)}, SnapshotSettings)
    return SnapshotSaver(settings, folder / "config.toml")


def test_the_history_as_it_is_and_a_report_where_snapshots_go(tmp_path: Path) -> None:
    history = RunHistory(tmp_path / FILE)
    past = PastRuns(lambda: history, chosen(tmp_path / "out"))
    assert past.runs() == ()
    stamps = [past.stamp()]
    for kept in demo_runs(time.time(), "h")[:3]:
        history.keep(kept.run)
        stamps.append(past.stamp())
        assert stamps[-1] == past.stamp()
    assert len({repr(stamp) for stamp in stamps}) == 4
    assert len(past.runs()) == 3
    number = past.runs()[1].id
    past.forget(number)
    assert number not in {kept.id for kept in past.runs()}
    assert repr(past.stamp()) != repr(stamps[-1])
    with pytest.raises(UserError, match="not in the history any more"):
        past.forget(number)
    kept = demo_runs(time.time(), "h")[3]
    past = PastRuns(lambda: RunHistory(tmp_path / FILE), chosen(tmp_path / "out", "html", "json"))
    paths = [Path(path) for path in past.report(kept)]
    assert [path.suffix for path in paths] == [".html", ".json"]
    assert {path.parent for path in paths} == {tmp_path / "out"}


def test_the_demos_runs_are_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_DATA_DIR", str(tmp_path))
    saver = chosen(tmp_path)
    assert isinstance(past_runs(saver, demo=False, made_up=False), PastRuns)
    assert isinstance(past_runs(saver, demo=False, made_up=True), DemoPast)
    RunHistory(tmp_path / FILE).keep(demo_runs(time.time(), "h")[0].run)
    assert isinstance(past_runs(saver, demo=False, made_up=True), PastRuns)
    assert isinstance(past_runs(saver, demo=True, made_up=True), DemoPast)
    empty = tmp_path / "empty"
    monkeypatch.setenv("VRAMTUI_DATA_DIR", str(empty))
    past = DemoPast(1.8e9, chosen(empty))
    before = past.runs()
    stamp = past.stamp()
    past.forget(before[0].id)
    assert past.runs() == before[1:]
    assert past.stamp() != stamp
    assert not empty.exists()
    assert past.note


def test_the_demos_runs_are_plausible() -> None:
    now = 1.8e9
    runs = demo_runs(now, "demo")
    assert runs == demo_runs(now, "demo")
    assert [kept.id for kept in runs] == sorted((kept.id for kept in runs), reverse=True)
    starts = [kept.run.started_at for kept in runs]
    assert starts == sorted(starts, reverse=True)
    assert runs[0].run.ending == "running"
    assert {"out_of_memory", "failed"} < {kept.run.ending for kept in runs}
    for kept in runs:
        run = kept.run
        assert run.started_at < now
        assert run.ended_at is None or run.started_at < run.ended_at <= now
        assert run.error is not None
        assert abs(run.error) < 0.1
        assert list(run.times) == sorted(run.times)
        assert max(run.values) <= (run.observed.process or 0)
        if run.observed.reserved is not None:
            assert (run.observed.allocated or 0) <= run.observed.reserved <= (run.observed.process or 0)
