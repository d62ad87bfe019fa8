import re
import threading
from collections.abc import Callable
from unittest.mock import patch

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from tests.app.driver import Driver, choose_process, climbing, dashboard, known, press, screen_text, settle
from tests.app.fakes import FixedPresets
from tests.monitor.test_job_presets import kept
from vramtui.app.themes import Palette
from vramtui.app.timeline.screen import TimelineScreen, lines_of, sampled
from vramtui.app.ui.chooser import Confirm
from vramtui.app.ui.parts import stack
from vramtui.app.watch.screen import Watch
from vramtui.core.base.colours import DARK
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Moment
from vramtui.core.schema.models import TorchModel
from vramtui.core.schema.preset import Match, Preset, PresetFile
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.dryrun.estimate import estimate_of
from vramtui.dryrun.result import JobCommand, Progress
from vramtui.dryrun.result import TracePoint as Point
from vramtui.dryrun.traces import FinishedTrace, JobTrace, preset_of_command
from vramtui.monitor.predictor import LazyAnalytic

SIZES = [(80, 24), (120, 35), (200, 50)]


class HandTracer:
    def __init__(self, *, refusal: str = "", problem: str = "", at_once: bool = True) -> None:
        self.asked: list[Workload] = []
        self.go_on = threading.Event()
        self.over = threading.Event()
        self._refusal, self._problem = refusal, problem
        if at_once:
            self.go_on.set()

    def refusal(self, workload: Workload) -> str:
        del workload
        return self._refusal

    def trace(
        self, workload: Workload, device: Device, progress: Callable[[Progress], None], cancel: threading.Event
    ) -> FinishedTrace | None:
        del device
        self.asked.append(workload)
        progress(Progress(phase="forward", step=0, allocated=GIB, peak_allocated=2 * GIB))
        while not self.go_on.wait(0.01):
            if cancel.is_set():
                self.over.set()
                return None
        self.over.set()
        if self._problem:
            raise UserError(self._problem)
        return FinishedTrace(estimate_of(kept(), workload), kept())

    def command_of(self, pid: int, command: str) -> JobCommand:
        if "python" not in command:
            raise UserError(f"pid {pid} runs no Python script")
        return JobCommand(
            words=tuple(command.split()),
            python="/srv/ada/.venv/bin/python",
            script="/srv/ada/train.py",
            folder="/srv/ada/runs",
            environment={},
        )

    def trace_job(
        self, command: JobCommand, device: Device, progress: Callable[[Progress], None], cancel: threading.Event
    ) -> JobTrace | None:
        progress(Progress(phase="forward", step=0, allocated=GIB, peak_allocated=2 * GIB))
        while not self.go_on.wait(0.01):
            if cancel.is_set():
                return None
        if self._problem:
            raise UserError(self._problem)
        return JobTrace(preset=preset_of_command(command, kept()), device=device, result=kept())


async def traced(driver: Driver) -> str:
    app, pilot = driver
    while app.parts.traces.running is not None:
        await pilot.pause(0.01)
    await settle(app, pilot)
    return screen_text(app)


async def test_traced(picture: SnapshotAssertion) -> None:
    async with dashboard(climbing(), tracer=HandTracer()) as driver:
        await press(*driver, "3", "t")
        await traced(driver)
        assert driver[0].parts.export.picture() == picture


@pytest.mark.parametrize("size", SIZES[1:], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_what_was_not_traced_has_its_parts_and_all_the_room(size: tuple[int, int]) -> None:
    async with dashboard(climbing(), size) as driver:
        text = await press(*driver, "3")
        assert "Largest at the peak · analytic" in text
        assert re.search(r"what +part +arithmetic", text), text
        phases, below = (driver[0].screen.query_one(name).outer_size.height for name in ("#phases", "#lower"))
        assert phases + below == size[1] - 5
        assert "arrows scroll" not in text, "where there is room for each phase, each is shown"


async def test_pages_of_a_small_terminal() -> None:
    async with dashboard(climbing(), (80, 24), tracer=HandTracer()) as driver:
        await press(*driver, "3", "t")
        assert "Phases" in await traced(driver)
        for title, words in (
            ("Every allocation", "peak 17.5 GiB"),
            ("Largest at the peak", "made by"),
            ("Phases", "forward"),
        ):
            text = await press(*driver, "v")
            assert title in text
            assert words in text


async def test_the_traced_column_and_keys_of_watch() -> None:
    async with dashboard(climbing(), tracer=HandTracer()) as driver:
        await press(*driver, "3", "t")
        await traced(driver)
        assert "analytic observed dry run" in await press(*driver, "1")
    async with dashboard(climbing()) as driver:
        assert "batch 5" in await press(*driver, "3", "]")
        assert "batch 4" in await press(*driver, "[")
        assert "seq 6144" in await press(*driver, "}")
        assert "seq 4096" in await press(*driver, "{")
        await press(*driver, "]")
        assert "batch 4" in await press(*driver, "u")
        assert "PAUSED" in await press(*driver, "space")
        assert "Dry run of the preset" in await press(*driver, "question_mark")
        await press(*driver, "escape", "p")
        assert "Choose a preset" in screen_text(driver[0])


@pytest.mark.parametrize("plain", ["NO_COLOR", "VRAMTUI_ASCII"])
async def test_without_colours_and_in_ascii(monkeypatch: pytest.MonkeyPatch, plain: str) -> None:
    """Letters tell the categories apart, and every piece of a bar begins with its own."""
    monkeypatch.setenv(plain, "1")
    async with dashboard(climbing(), tracer=HandTracer()) as driver:
        await press(*driver, "3", "t")
        text = await traced(driver)
        assert "W weights" in text
        assert "A activations" in text
        forward = next(line for line in text.splitlines() if "1 forward" in line)
        assert "W" in forward
        assert "A" in forward


async def test_there_and_back_by_keys_and_by_the_header() -> None:
    async with dashboard(climbing()) as driver:
        await press(*driver, "3")
        assert isinstance(driver[0].screen, TimelineScreen)
        await press(*driver, "3")
        assert len(driver[0].screen_stack) == 2
        await press(*driver, "1")
        assert isinstance(driver[0].screen, Watch)
        await press(*driver, "3", "escape")
        assert isinstance(driver[0].screen, Watch)
    async with dashboard(climbing()) as (app, pilot):
        await pilot.click("Header", offset=(32, 0))
        await settle(app, pilot)
        assert isinstance(app.screen, TimelineScreen)
        await pilot.click("Header", offset=(12, 0))
        await settle(app, pilot)
        assert isinstance(app.screen, Watch)


async def test_progress_and_cancel() -> None:
    for key in ("x", "escape"):
        tracer = HandTracer(at_once=False)
        async with dashboard(climbing(), tracer=tracer) as (app, pilot):
            await press(app, pilot, "3", "t")
            while "forward" not in app.parts.traces.words:
                await pilot.pause(0.01)
            await settle(app, pilot)
            assert "step 1, forward is done: 1.0 GiB held" in screen_text(app)
            await press(app, pilot, key)
            text = await traced((app, pilot))
            assert tracer.over.is_set()
            assert isinstance(app.screen, TimelineScreen)
            assert "Press t for a dry run" in text


async def test_one_trace_at_a_time_by_its_workload_or_none_where_it_is_only_looked_at() -> None:
    tracer = HandTracer()
    async with dashboard(climbing(), tracer=tracer) as driver:
        await press(*driver, "3", "t")
        assert "peak" in await traced(driver)
        assert "Press t for a dry run" in await press(*driver, "]")
        assert "peaks: allocated" in await press(*driver, "[")
        assert len(tracer.asked) == 1
    tracer = HandTracer(at_once=False)
    async with dashboard(climbing(), tracer=tracer, notifications=True) as driver:
        await press(*driver, "3", "t")
        assert "A dry run is already running" in await press(*driver, "t")
        assert "another workload" in await press(*driver, "]")
        tracer.go_on.set()
        await traced(driver)
        assert "peaks: allocated" in await press(*driver, "[")
    tracer = HandTracer(at_once=False)
    async with dashboard(climbing(), tracer=tracer) as driver:
        await choose_process(driver, JOB)
        await press(*driver, "t", "y")
        assert driver[0].parts.traces.busy
        assert "dry run  " in await press(*driver, "3")
        assert "already running" in await said(driver, "1", "t", "3", "x")
        assert driver[0].state.session.by_hand == {}
    async with dashboard(climbing(), tracer=tracer, view_only=True) as driver:
        await choose_process(driver, JOB)
        assert "view-only" in await said(driver, "t")


async def test_what_cannot_be_traced_says_why_also_without_a_preset() -> None:
    refusal = "trace needs torch: pip install 'vramtui[torch]'"
    tracer = HandTracer(refusal=refusal)
    async with dashboard(climbing(), tracer=tracer) as driver:
        assert "no dry run" not in await press(*driver, "3", "t")  # the preset describes a model
        assert driver[0].announced[-1].message == refusal
        assert not tracer.asked
    async with dashboard(climbing(), presets=FixedPresets((OWN_CODE,)), tracer=tracer) as driver:
        assert f"no dry run: {refusal}" in await press(*driver, "3")
    async with dashboard(climbing(), tracer=HandTracer(problem="aten::nonzero has no shape")) as driver:
        await press(*driver, "3", "t")
        assert "aten::nonzero has no shape" in await traced(driver)
        for columns in (2, 1):
            await driver[1].resize_terminal(columns, 9)
            await settle(*driver)
    async with dashboard([climbing()[0]], presets=FixedPresets(()), tracer=HandTracer(), notifications=True) as driver:
        assert "No preset selected" in await press(*driver, "3")
        assert "Choose a preset first" in await press(*driver, "t")
    async with dashboard(climbing(), (80, 18), tracer=HandTracer()) as driver:
        await press(*driver, "3", "t")
        assert "build" in await traced(driver)
        assert "build" not in await press(*driver, "pagedown", "down")
        assert "build" in await press(*driver, "pageup", "k")


OWN_CODE = PresetFile(
    key="own",
    path="own.toml",
    bundled=False,
    preset=Preset(name="own", model=TorchModel(file="jobs/own.py"), run=TrainRun(), match=Match(all=(("train.py",),))),
)


async def test_code_of_a_preset_is_asked_about() -> None:
    tracer = HandTracer()
    async with dashboard(climbing(), presets=FixedPresets((OWN_CODE,)), tracer=tracer) as driver:
        text = await press(*driver, "3", "t")
        assert isinstance(driver[0].screen, Confirm)
        assert "jobs/own.py" in text
        for no in ("n", "escape"):
            await press(*driver, no)
            assert isinstance(driver[0].screen, TimelineScreen)
            await press(*driver, "t")
        assert not tracer.asked
        await press(*driver, "y")
        await traced(driver)
        assert len(tracer.asked) == 1


def moment(step: int, phase: str, peak: int, **categories: int) -> Moment:
    return msgspec.convert(
        {"phase": phase, "step": step, "allocated": sum(categories.values()), "peak_allocated": peak}
        | {"categories": categories},
        Moment,
    )


def test_sides_stand_together_and_thinning_keeps_the_peak() -> None:
    ours = (moment(0, "build", 1), moment(0, "forward", 5), moment(0, "backward", 9), moment(1, "backward", 9))
    theirs = (moment(0, "forward", 7), moment(0, "backward", 6))
    lines = lines_of([("analytic", ours), ("observed", theirs)])
    assert [(label, side, peaks) for label, side, _, peaks in lines] == [
        ("build", "analytic", False), ("1 forward", "analytic", False), ("", "observed", True),
        ("1 backward", "analytic", True), ("", "observed", False), ("2 backward", "analytic", False),
    ]  # fmt: skip
    palette = Palette({"foreground": "#ffffff", "background": "#000000", "muted": "#888888"} | DARK)
    for width in (10, 37, 80):
        pieces = stack({"weights": 3, "activations": 4}, 7, 9, 10, width, palette=palette)
        text = "".join(text for text, _ in pieces)
        assert len(text) == round(9 * width / 10)
        assert text.rstrip("░").startswith("W")
        assert (text.index("A"), len(text.rstrip("░"))) == (round(3 * width / 10), round(7 * width / 10))
    series = tuple(Point(event=at, allocated=at % 97, reserved=100) for at in range(1000))
    for count in (2, 10, 333, 2000):
        points = sampled(series, count)
        assert len(points) == count
        assert max(allocated for allocated, _ in points) == 96


JOB = "train.py"


async def test_what_will_run_is_asked_first(picture: SnapshotAssertion) -> None:
    async with dashboard(climbing(), (80, 24), tracer=HandTracer()) as driver:
        await choose_process(driver, JOB)
        text = await press(*driver, "t")
        assert isinstance(driver[0].screen, Confirm)
        assert "/srv/ada/.venv/bin/python" in text
        assert "reaches no network" in " ".join(text.replace("│", " ").split())
        assert driver[0].parts.export.picture() == picture
        await press(*driver, "n")
        assert isinstance(driver[0].screen, Watch)
        assert driver[0].parts.traces.running is None


async def test_the_trace_is_what_the_process_is_predicted_by() -> None:
    async with dashboard(climbing(), tracer=HandTracer(), estimator=LazyAnalytic()) as driver:
        await choose_process(driver, JOB)
        await press(*driver, "t", "y")
        text = await traced(driver)
        row = known(driver[0].state.view().chosen)
        assert known(row.preset).startswith("train.py (dry run ")
        assert row.predicted == kept().process
        panel = known(driver[0].state.view().panel)
        assert (known(panel.estimate).method, panel.process) == ("traced", row.process)
        assert format_bytes(kept().process).split()[0] in text
        assert "dry run  peaks: allocated" in await press(*driver, "3")
        await press(*driver, "t")
        assert isinstance(driver[0].screen, TimelineScreen)
        assert driver[0].parts.traces.running is None, "its command is known to Watch alone"


async def said(driver: Driver, *keys: str) -> str:
    sentences: list[str] = []
    with patch.object(driver[0], "notify", lambda message, **_: sentences.append(message)):
        await press(*driver, *keys)
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
