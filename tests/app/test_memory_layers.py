"""What the memory graph is stacked from, the predicted curve over it, and the demo's past."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.driver import climbing, dashboard, give, screen_text
from tests.app.scenes import usual
from tests.app.test_observed_parts import job
from tests.loaded_once import bundled_presets
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.ui.graph import EIGHTHS, MemoryGraph, column, expected, middle, tops
from vramtui.cli.common.open_source import open_source
from vramtui.core.base.units import GIB
from vramtui.core.observation.history import History
from vramtui.core.observation.probe_messages import Beat, ObservedJob
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession


def test_a_cell_has_both_of_its_layers() -> None:
    ends = tops((8, 3), 16, 16, 2)
    assert ends == (8, 11, 16)
    top, bottom = column(ends, 2)
    assert (bottom.text, bottom.layer, bottom.behind) == ("█", 0, None)
    assert (top.text, top.layer, top.behind) == ("▃", 1, 2)


def test_above_everything_is_nothing() -> None:
    top, bottom = column(tops((), 6, 16, 2), 2)
    assert (top.text, top.layer) == (" ", None)
    assert (bottom.text, bottom.layer, bottom.behind) == ("▆", 0, None)


def test_any_memory_at_all_is_seen_and_none_is_not() -> None:
    assert tops((), 1, 1000, 2) == (1,)
    assert tops((5,), 0, 1000, 2) == (0, 0)


@given(st.lists(st.integers(0, 50), max_size=4), st.integers(0, 300), st.integers(1, 6))
def test_a_column_is_as_high_as_the_whole(sizes: list[int], whole: int, height: int) -> None:
    """Layers never go beyond what was seen, and every cell below its top is drawn."""
    ends = tops(sizes, whole, 200, height)
    assert list(ends) == sorted(ends)
    assert ends[-1] <= height * EIGHTHS
    cells = column(ends, height)
    drawn = sum(cell.layer is not None for cell in cells)
    assert drawn == -(-ends[-1] // EIGHTHS)


def test_a_letter_stands_in_the_middle_of_its_layer() -> None:
    ends = (16, 18, 40)
    assert [middle(ends, layer, 5) for layer in range(3)] == [3, None, 1]


async def test_the_graph_is_stacked_by_what_the_job_tells() -> None:
    async with dashboard(climbing(), (200, 50)) as (app, pilot):
        chosen = app.state.view().chosen
        assert chosen is not None
        assert chosen.process is not None
        told = job(chosen.process.pid, chosen.gpu.uuid)
        beat = told.beat
        assert beat is not None
        app.session.jobs = lambda: (_now(told, beat, 40 * GIB, 44 * GIB),)
        await give(app, pilot, usual(1.0))
        series = app.state.view().series
        assert series is not None
        assert series.layers is not None
        assert dict(zip(series.layers.names, (values[-1] for values in series.layers.values), strict=True)) == {
            "weights": 15 * GIB,
            "optimizer": GIB,
            "gradients": 0,
            # The fullest moment that it told of, in the forward pass.
            "activations": 39 * GIB,
            "cached": 0,
        }
        assert "as the job reports" in screen_text(app)
        graph = app.screen.query_one(MemoryGraph)
        colours = {segment.style.color.name for line in graph.shown for segment in line if segment.style}  # type: ignore[union-attr]  # all have one
        assert {"#6ea8fe", "#ff9f5a"} <= colours


def _now(told: ObservedJob, beat: Beat, allocated: int, reserved: int) -> ObservedJob:
    """The same job, with what it holds now."""
    counters = msgspec.structs.replace(beat.devices[0], allocated=allocated, reserved=reserved)
    return msgspec.structs.replace(told, beat=msgspec.structs.replace(beat, devices=(counters,)))


async def test_without_a_probe_what_lasts_is_as_the_estimate_has_it() -> None:
    async with dashboard(climbing(), (120, 35)) as (app, _):
        series = app.state.view().series
        assert series is not None
        assert series.layers is not None
        assert series.layers.names[0] == "weights"
        assert series.layers.values[0] == (15 * GIB,)
        assert series.layers.source == "as estimated"
        assert "as estimated" in screen_text(app)


async def test_utilisation_stands_beside_memory() -> None:
    async with dashboard(climbing(), (120, 35)) as (app, _):
        text = screen_text(app)
        assert "GPU %│" in text
        assert "GPU 90 %" not in text  # the legend has it where no strip does


def test_the_demo_begins_with_a_past_and_with_its_parts() -> None:
    """Its first frame has two minutes of memory; the curve follows the phases of the job's first step."""
    opened = open_source(demo=True, replay=None)
    assert opened.past is not None
    state = DashboardState(MonitorSession(predictor=Predictor(), jobs=opened.jobs or tuple))
    state.session.backfill(opened.past)
    state.take(opened.source.read())
    series = state.view().series
    assert series is not None
    assert series.times[0] <= series.end - 100
    assert len(set(series.values)) > 1, "an evaluation gave its cache back"
    assert series.busy is not None
    assert len(series.busy[0]) > 50

    state.take_presets(bundled_presets())
    state.span = 600
    series = state.view().series
    assert series is not None
    assert series.layers is not None
    assert series.layers.source == "as the job reports"
    assert len(series.layers.times) > 1
    held = [value for value in expected(series, 200) if value is not None]
    assert held == sorted(held)
    assert held[0] < 20 * GIB < 60 * GIB < held[-1] == series.predicted


def test_the_past_raises_no_alerts_and_makes_no_runs() -> None:
    opened = open_source(demo=True, replay=None)
    assert opened.past is not None
    session = MonitorSession()
    session.backfill(opened.past)
    assert session.sample is None
    assert not session.alerts
    assert isinstance(session.history, History)
    assert session.history.tracks


@pytest.mark.parametrize("name", ["NO_COLOR"])
async def test_without_colours_layers_are_letters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    async with dashboard(climbing(), (120, 35)) as (app, _):
        assert "WWW" in screen_text(app)
