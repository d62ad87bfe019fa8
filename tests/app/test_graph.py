from array import array
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.app.driver import climbing, dashboard, give, known, press, screen_text, settle
from tests.app.fakes import PRESETS, FixedPresets
from tests.app.scenes import usual
from tests.loaded_once import bundled_presets
from vramtui.app.state.dashboard_state import DashboardState, ceiling, row_ledger
from vramtui.app.state.view import Series
from vramtui.app.timeline.trace_jobs import observed_moments
from vramtui.app.ui import graph as graphs
from vramtui.cli.common.open_source import open_source
from vramtui.core.base.units import GIB
from vramtui.core.observation.history import History
from vramtui.core.observation.probe_messages import Beat, End, Hello, MemoryCounters, ObservedJob, PhaseEnd, ProbeDevice
from vramtui.core.observation.readings import ProcessKey
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession


def series(points: list[tuple[float, int]], start: float, end: float) -> Series:
    times, values = array("d", [at for at, _ in points]), array("q", [value for _, value in points])
    return Series("", times, values, start, end, ceiling=100, predicted=None)


def test_a_bucket_holds_the_largest_value_and_any_memory_is_seen() -> None:
    assert graphs.buckets(series([(0.0, 5), (10.0, 50), (11.0, 7), (30.0, 9)], 0.0, 40.0), 4) == [5, 50, 7, 9]
    assert graphs.buckets(series([(25.0, 5)], 0.0, 40.0), 4) == [None, None, 5, 5]
    # Half a second later the same stretches of time lie in the same buckets.
    points = [(float(at), at % 7) for at in range(0, 120, 3)]
    assert graphs.buckets(series(points, 0.1, 120.1), 30) == graphs.buckets(series(points, 0.9, 120.9), 30)
    # Each move costs some bytes a line, which one a second would be most of what a quiet screen sends over ssh.
    points = [(float(at), 10 + at) for at in range(200)]
    seen = [graphs.buckets(series(points[: at + 1], at - 120.0, float(at)), 180) for at in range(130, 190)]
    assert [picture[-1] for picture in seen] == [points[at][1] for at in range(130, 190)]
    moved = sum(one[:90] != other[:90] for one, other in pairwise(seen))
    assert 0 < moved <= 60 / graphs.MOVES_EVERY + 1
    assert graphs.braille_rows([0, 1, 2, 3, 4, 8], 2) == ["  ⢸", "⢀⣴⣿"]
    assert graphs.levels([1, None, 0, 100, 1000], 100, 2) == [1, 0, 0, 8, 8]
    ends = graphs.tops((8, 3), 16, 16, 2)
    assert ends == (8, 11, 16)
    top, bottom = graphs.column(ends, 2)
    assert (bottom.text, bottom.layer, bottom.behind) == ("█", 0, None)
    assert (top.text, top.layer, top.behind) == ("▃", 1, 2)
    top, bottom = graphs.column(graphs.tops((), 6, 16, 2), 2)
    assert (top.text, top.layer) == (" ", None)
    assert (bottom.text, bottom.layer, bottom.behind) == ("▆", 0, None)
    assert (graphs.tops((), 1, 1000, 2), graphs.tops((5,), 0, 1000, 2)) == ((1,), (0, 0))
    ends = (16, 18, 40)
    assert [graphs.middle(ends, layer, 5) for layer in range(3)] == [3, None, 1]


def test_what_trembles_waits_for_the_next_move_and_a_jump_is_drawn_at_once() -> None:
    points = [(float(at), 50 + at % 3) for at in range(200)]
    seen = [graphs.layer_ends(series(points[: at + 1], at - 120.0, float(at)), 180, 5) for at in range(130, 190)]
    assert 0 < sum(one != other for one, other in pairwise(seen)) <= 60 / graphs.MOVES_EVERY + 1
    for more in ([], [(151.0, 81), (152.0, 79)]):
        assert graphs.layer_ends(series([*points[:150], (150.0, 80), *more], 32.0, 152.0), 180, 5)[-1] == graphs.tops(
            (), 80, 100, 5
        )


amounts = st.integers(0, 2**40)
histories = st.lists(st.tuples(st.floats(0, 1000), amounts), min_size=1, max_size=50).map(sorted)


@given(histories, st.integers(2, 200))
def test_no_bucket_shows_what_was_never_held(points: list[tuple[float, int]], count: int) -> None:
    found = graphs.buckets(series(points, 0.0, 1000.0), count)
    held = {value for _, value in points}
    assert len(found) == count
    assert all(value is None or value in held for value in found)


@given(histories)
def test_the_peak_of_the_span_is_drawn(points: list[tuple[float, int]]) -> None:
    later = [(at + 1.0, value) for at, value in points]
    found = graphs.buckets(series(later, 0.0, 1001.0), 40)
    last_at = dict(later)
    assert max(value for value in found if value is not None) >= max(last_at.values())


@given(st.lists(st.integers(0, 5 * graphs.DOTS), min_size=2, max_size=40), st.integers(1, 5))
def test_as_many_dots_as_levels(dots: list[int], height: int) -> None:
    dots = dots[: len(dots) // 2 * 2]
    rows = graphs.braille_rows(dots, height)
    drawn = sum((ord(cell) - 0x2800).bit_count() for row in rows for cell in row if cell != " ")
    assert drawn == sum(min(level, height * graphs.DOTS) for level in dots)


@given(st.integers(0, 2**42), st.one_of(st.none(), st.integers(GIB, 2**42)))
def test_the_ceiling_is_above_everything_and_not_above_the_card(highest: int, total: int | None) -> None:
    top = ceiling(highest, total)
    assert top >= (highest if total is None else min(highest, 2 * total))
    if total is not None and highest <= total:
        assert top <= max(total, highest * 1.08)


def job(pid: int, uuid: str) -> ObservedJob:
    card = ProbeDevice(index=1, name="card", total_memory=80 * GIB, capability=(9, 0), uuid=uuid.removeprefix("GPU-"))
    ends = (
        PhaseEnd(at=1.0, phase="build", step=0, device=1, allocated=15 * GIB, peak_allocated=15 * GIB),
        PhaseEnd(at=2.0, phase="forward", step=0, device=1, allocated=50 * GIB, peak_allocated=55 * GIB),
        PhaseEnd(at=3.0, phase="backward", step=0, device=1, allocated=16 * GIB),
        PhaseEnd(at=3.0, phase="backward", step=0, device=0, allocated=1),
        PhaseEnd(at=4.0, phase="step", step=0, device=1),
    )
    beat = Beat(
        v=1,
        pid=pid,
        at=4.0,
        step=0,
        devices=(MemoryCounters(index=1, allocated_peak=55 * GIB, reserved_peak=57 * GIB),),
        parts={"weights": {"cuda:1": 15 * GIB}, "optimizer": {"cuda:1": GIB}},
        moments=ends,
    )
    return ObservedJob(pid=pid).heard(Hello(v=1, pid=pid, at=0.0, devices=(card,))).heard(beat)


async def test_parts_and_phases_of_the_job_that_runs_the_preset() -> None:
    async with dashboard(climbing(), (120, 35)) as (app, pilot):
        view = app.state.view()
        told = (job(known(view.chosen.process).pid, view.chosen.gpu.uuid),)

        def jobs() -> Sequence[ObservedJob]:
            return told

        app.session.jobs = jobs
        ledger = row_ledger(jobs, known(view.chosen))
        assert (ledger.weights, ledger.optimizer, ledger.allocated) == (15 * GIB, GIB, 55 * GIB)
        assert (ledger.activations, ledger.cached, ledger.process) == (39 * GIB, 2 * GIB, view.chosen.peak)
        moments = observed_moments(jobs, known(app.state.view().panel))
        assert [(one.phase, one.allocated, one.peak_allocated) for one in moments] == [
            ("build", 15 * GIB, 15 * GIB),
            ("forward", 50 * GIB, 55 * GIB),
            ("backward", 16 * GIB, 16 * GIB),
        ]
        await settle(app, pilot)
        assert "55.00" in app.parts.export.picture()
        await press(app, pilot, "3")
        assert "observed:&#160;3&#160;phases" in app.parts.export.picture()


async def test_other_jobs_tell_nothing_of_it_and_one_that_died_has_no_context() -> None:
    async with dashboard(climbing()) as (app, _):
        row = known(app.state.view().chosen)
        for stranger in (job(known(row.process).pid + 1, row.gpu.uuid), job(known(row.process).pid, "GPU-another")):
            app.session.jobs = lambda told=(stranger,): told  # type: ignore[misc]  # a default is how a loop binds
            assert observed_moments(app.state.session.jobs, known(app.state.view().panel)) == ()
            ledger = row_ledger(app.state.session.jobs, row)
            assert (ledger.allocated, ledger.process) == (None, row.peak)
        row = known(app.state.view().chosen)
        running = job(known(row.process).pid, row.gpu.uuid)
        row = replace(row, peak=60 * GIB)
        contexts = [
            row_ledger(lambda told=one: (told,), row).context  # type: ignore[misc]  # a default is how a loop binds
            for one in (running, replace(running, gone=True), replace(running, gone=True, end=End(v=1, pid=1, at=5.0)))
        ]
        assert contexts == [3 * GIB, None, 3 * GIB]


async def test_without_its_preset_the_jobs_own_figures_are_shown() -> None:
    async with dashboard(climbing(), (120, 35), presets=FixedPresets(())) as (app, pilot):
        view = app.state.view()
        assert view.panel is None
        chosen = known(view.chosen)
        told = (job(known(chosen.process).pid, chosen.gpu.uuid),)
        app.session.jobs = lambda: told
        await settle(app, pilot)
        text = screen_text(app)
        for words in (f"Reported by pid {known(chosen.process).pid}", "15.00", "m assigns a preset"):
            assert words in text
        text = await press(app, pilot, "3")
        assert "1 forward" in text
        assert "Phases · observed" in text
    async with dashboard(climbing(), (120, 35), preset=PRESETS[1].key) as (app, pilot):
        chosen = known(app.state.view().chosen)
        assert isinstance(chosen.id, ProcessKey)
        pid = known(chosen.process).pid
        app.state.assign(chosen.id, None)
        told = (job(pid, chosen.gpu.uuid),)
        app.session.jobs = lambda: told
        await settle(app, pilot)
        assert f"pid {pid} reports at its peak" in screen_text(app)


@given(st.lists(st.integers(0, 50), max_size=4), st.integers(0, 300), st.integers(1, 6))
def test_a_column_is_as_high_as_the_whole(sizes: list[int], whole: int, height: int) -> None:
    ends = graphs.tops(sizes, whole, 200, height)
    assert list(ends) == sorted(ends)
    assert ends[-1] <= height * graphs.EIGHTHS
    cells = graphs.column(ends, height)
    assert sum(cell.layer is not None for cell in cells) == -(-ends[-1] // graphs.EIGHTHS)


async def test_the_graph_is_stacked_by_what_the_job_tells() -> None:
    async with dashboard(climbing(), (200, 50)) as (app, pilot):
        chosen = known(app.state.view().chosen)
        told = job(known(chosen.process).pid, chosen.gpu.uuid)
        beat = known(told.beat)
        app.session.jobs = lambda: (_now(told, beat, 40 * GIB, 44 * GIB),)
        await give(app, pilot, usual(1.0))
        series = known(app.state.view().series)
        assert dict(zip(series.layers.names, (values[-1] for values in series.layers.values), strict=True)) == {
            "weights": 15 * GIB,
            "optimizer": GIB,
            "gradients": 0,
            # The fullest moment that it told of, in the forward pass.
            "activations": 39 * GIB,
            "cached": 0,
        }
        assert "as the job reports" in screen_text(app)
        graph = app.screen.query_one(graphs.MemoryGraph)
        colours = {segment.style.color.name for line in graph.shown for segment in line if segment.style}
        assert {"#6ea8fe", "#ff9f5a"} <= colours


def _now(told: ObservedJob, beat: Beat, allocated: int, reserved: int) -> ObservedJob:
    counters = msgspec.structs.replace(beat.devices[0], allocated=allocated, reserved=reserved)
    return msgspec.structs.replace(told, beat=msgspec.structs.replace(beat, devices=(counters,)))


async def test_without_a_probe_what_lasts_is_as_the_estimate_has_it() -> None:
    async with dashboard(climbing(), (120, 35)) as (app, _):
        series = known(app.state.view().series)
        assert (series.layers.names[0], series.layers.values[0]) == ("weights", (15 * GIB,))
        assert series.layers.source == "as estimated"
        text = screen_text(app)
        assert "as estimated" in text
        assert "GPU %│" in text
        assert "GPU 90 %" not in text  # the legend has it where no strip does


def test_the_demo_begins_with_a_past_its_parts_and_no_alerts() -> None:
    opened = open_source(demo=True, replay=None)
    assert opened.past is not None
    state = DashboardState(MonitorSession(predictor=Predictor(), jobs=opened.jobs or tuple))
    state.session.backfill(opened.past)
    state.take(opened.source.read())
    series = known(state.view().series)
    assert series.times[0] <= series.end - 100
    assert len(set(series.values)) > 1, "an evaluation gave its cache back"
    assert series.busy is not None
    assert len(series.busy[0]) > 50

    state.take_presets(bundled_presets())
    state.span = 600
    series = known(state.view().series)
    assert known(series.layers).source == "as the job reports"
    assert len(known(series.layers).times) > 1
    held = [value for value in graphs.expected(series, 200) if value is not None]
    assert held == sorted(held)
    assert held[0] < 20 * GIB < 60 * GIB < held[-1] == series.predicted
    opened = open_source(demo=True, replay=None)
    assert opened.past is not None
    session = MonitorSession()
    session.backfill(opened.past)
    assert session.sample is None
    assert not session.alerts
    assert isinstance(session.history, History)
    assert session.history.tracks


async def test_without_colours_layers_are_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with dashboard(climbing(), (120, 35)) as (app, _):
        assert "WWW" in screen_text(app)
