"""`t` on Watch: the selected process's own command, asked about, traced, and its prediction beside what is observed."""

from unittest.mock import patch

from syrupy.assertion import SnapshotAssertion

from tests.app.driver import Driver, choose_process, climbing, dashboard
from tests.app.svg import SvgExtension
from tests.app.test_timeline import HandTracer, kept, press, traced
from vramtui.app.timeline.screen import TimelineScreen
from vramtui.app.ui.chooser import Confirm
from vramtui.app.watch.screen import Watch
from vramtui.core.base.units import format_bytes
from vramtui.monitor.predictor import LazyAnalytic

JOB = "train.py"


async def test_what_will_run_is_asked_first(snapshot: SnapshotAssertion) -> None:
    async with dashboard(climbing(), (80, 24), tracer=HandTracer()) as driver:
        await choose_process(driver, JOB)
        text = await press(driver, "t")
        assert isinstance(driver[0].screen, Confirm)
        assert "/srv/ada/.venv/bin/python" in text
        assert "reaches no network" in " ".join(text.replace("│", " ").split())
        assert driver[0].parts.export.picture() == snapshot.use_extension(SvgExtension)
        await press(driver, "n")
        assert isinstance(driver[0].screen, Watch)
        assert driver[0].parts.traces.running is None


async def test_the_trace_is_what_the_process_is_predicted_by() -> None:
    async with dashboard(climbing(), tracer=HandTracer(), estimator=LazyAnalytic()) as driver:
        await choose_process(driver, JOB)
        await press(driver, "t", "y")
        text = await traced(driver)
        row = driver[0].state.view().chosen
        assert row is not None
        assert row.preset is not None
        assert row.preset.startswith("train.py (dry run ")
        assert row.predicted == kept().process
        panel = driver[0].state.view().panel
        assert panel is not None
        assert panel.estimate is not None
        assert (panel.estimate.method, panel.process) == ("traced", row.process)
        assert format_bytes(kept().process).split()[0] in text
        timeline = await press(driver, "3")
        assert "dry run  peaks: allocated" in timeline
        await press(driver, "t")
        assert isinstance(driver[0].screen, TimelineScreen)
        assert driver[0].parts.traces.running is None, "its command is known to Watch alone"


async def said(driver: Driver, *keys: str) -> str:
    """What is said of these keys, and of what they have begun once it has ended."""
    sentences: list[str] = []
    with patch.object(driver[0], "notify", lambda message, **_: sentences.append(message)):
        await press(driver, *keys)
        await traced(driver)
    return " ".join(sentences)


async def test_what_cannot_be_traced_is_a_sentence() -> None:
    async with dashboard(climbing(), tracer=HandTracer()) as driver:
        await choose_process(driver, "vllm")
        assert "runs no Python script" in await said(driver, "t")
    async with dashboard(climbing(), tracer=HandTracer(problem="the code failed at train.py:3")) as driver:
        await choose_process(driver, JOB)
        assert "the code failed at train.py:3" in await said(driver, "t", "y")
        assert driver[0].state.session.by_hand == {}
    async with dashboard(climbing()) as driver:
        await choose_process(driver, JOB)
        assert "no dry runs here" in await said(driver, "t")


async def test_one_trace_at_a_time_and_none_where_it_is_only_looked_at() -> None:
    tracer = HandTracer(at_once=False)
    async with dashboard(climbing(), tracer=tracer) as driver:
        await choose_process(driver, JOB)
        await press(driver, "t", "y")
        assert driver[0].parts.traces.busy
        assert "dry run  " in await press(driver, "3")
        assert "already running" in await said(driver, "1", "t", "3", "x")
        assert driver[0].state.session.by_hand == {}
    async with dashboard(climbing(), tracer=tracer, view_only=True) as driver:
        await choose_process(driver, JOB)
        assert "view-only" in await said(driver, "t")
