import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import msgspec
import pytest

from tests.app import scenes
from tests.app.driver import dashboard, give, known, screen_text, settle
from tests.examples import Clock
from tests.fuzz.pictures import palette, rows_of, view_of
from vramtui.app.context import ReadFailed, SourceStuck
from vramtui.app.live import AlertFeature
from vramtui.app.state.view import View
from vramtui.app.ui.view_screen import Banner, Header
from vramtui.app.watch.gpu_panel import GpuPanel
from vramtui.core.observation.alerts import Alert
from vramtui.core.observation.readings import Memory, Sample
from vramtui.core.schema.settings import AlertRules


@pytest.mark.parametrize("what", [ReadFailed("nvmlInit: the NVIDIA driver is not loaded."), SourceStuck()])
async def test_a_failed_read_ages_everything(what: ReadFailed | SourceStuck) -> None:
    clock = Clock(scenes.START)
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        assert "no answer for" not in screen_text(app)
        for seconds in (3, 7):
            clock.now = scenes.START + seconds
            app.post_message(what)
            await settle(app, pilot)
            view, screen = app.state.view(), screen_text(app)
            assert {bar.age for bar in view.bars} == {seconds}
            assert {row.age for row in view.rows if row.kind != "exited"} == {seconds}
            for words in (f"no answer for {seconds} s", f"{seconds} s ago: ", f"({seconds} s ago) "):
                assert words in screen
            assert view.series.ends is not None
            assert (view.series.ends[1], view.series.end) == (f"{seconds} s ago", scenes.START)
            assert known(view.sample).taken_at == clock.now
        clock.now += 1
        await give(app, pilot, scenes.usual(8))
        view = app.state.view()
        assert {bar.age for bar in view.bars if bar.gpu.state == "ok"} == {None}
        assert "no answer for" not in screen_text(app)


async def test_power_and_temperature_are_drawn_every_two_seconds_and_what_is_hot_at_once() -> None:
    async with dashboard([scenes.usual()], (200, 50)) as (app, pilot):
        for at, heat, is_new in ((1, 50, False), (2, 51, True), (3, 52, False), (3, 90, True)):
            now = scenes.usual(at)
            new = partial(msgspec.structs.replace, power_watts=heat + 100, temperature_celsius=heat)
            await give(app, pilot, msgspec.structs.replace(now, gpus=tuple(map(new, now.gpus))))
            assert (f" {heat + 100}" in screen_text(app)) == is_new


async def test_all_cards_at_once_are_one_message_and_the_title_counts_the_rows_of_the_lost() -> None:
    before = scenes.usual()
    gone = partial(msgspec.structs.replace, state="lost", reason="fell off the bus", memory=Memory(), processes=())
    count = sum(len(gpu.processes) for gpu in before.gpus)
    async with dashboard([before]) as (app, pilot):
        await give(app, pilot, msgspec.structs.replace(scenes.usual(5), gpus=tuple(map(gone, before.gpus))))
        assert sum(row.kind == "process" for row in app.state.view().rows) == count
        assert f"Processes · {count} " in screen_text(app)
    async with dashboard([scenes.usual()]) as (app, pilot):
        lost = Alert(kind="lost", gpu_uuid="G", gpu_index=0, process=None, sentence="GPU 0 is lost.")
        alerts = [msgspec.structs.replace(lost, gpu_uuid=f"G{index}", gpu_index=index) for index in range(8)]
        AlertFeature(app.shared, AlertRules()).say(alerts)
        await pilot.pause()
        (shown,) = app.announced
        assert shown.message == "8 at once, on GPU 0, 1, 2, 3, 4, 5, 6, 7. The first: GPU 0 is lost. (! lists all)"


async def test_the_time_goes_on_while_an_answer_is_late() -> None:
    """Before the deadline nothing is old yet; the clock stands only where the screen is paused."""
    clock = Clock(scenes.START)
    async with dashboard([scenes.usual(55)], clock=clock) as (app, pilot):

        async def shown_after(seconds: int, wait: float) -> bool:
            clock.now = scenes.START + seconds
            # What the bars show changed five seconds ago at most: that is sign enough, and the colon stands.
            then = time.strftime(" %H:%M ", time.localtime(clock.now))
            for _ in range(round(wait / 0.05)):
                await pilot.pause(0.05)
                if then in screen_text(app):
                    return True
            return False

        for seconds in (57, 60):
            assert await shown_after(seconds, 10)
            assert "no answer for" not in screen_text(app)
            assert {bar.age for bar in app.state.view().bars} == {None}
        await pilot.press("space")
        assert not await shown_after(120, 1)


@pytest.mark.parametrize("interval", [1, 5, 12])
def test_where_nothing_happens_the_clock_shows_that_the_program_goes_on(interval: int) -> None:
    seen = _headers(interval, [scenes.usual()] * (60 // interval))
    assert set(map(len, seen)) == {120}
    assert sum(one != other for one, other in pairwise(seen)) == 60 // max(10, interval) - 1


def test_the_header_names_a_host_as_it_was_asked_for_and_its_colon_stands_where_figures_move() -> None:
    usual = scenes.usual()
    moving = []
    for place in range(60):
        gpus = [msgspec.structs.replace(gpu, utilization=place // 5) for gpu in usual.gpus]
        moving.append(msgspec.structs.replace(usual, gpus=tuple(gpus)))
    assert {line.count(":") for line in _headers(1, moving)} == {1}
    # By an alias of ssh's, or an address; what it calls itself stands in the details.
    sample = scenes.usual()
    view = view_of([sample])
    for asked, shown in (("the driver", sample.host.name), ("trainer-a", "trainer-a")):
        (line,) = Header().build(msgspec.structs.replace(view, asked=asked), palette(), 120, 1)
        assert f"  {shown} ·" in line.text


def _headers(interval: int, samples: Sequence[Sample]) -> list[str]:
    header = Header()
    seen = []
    for place, sample in enumerate(samples):
        view = view_of([msgspec.structs.replace(sample, taken_at=scenes.START + place * interval)])
        (line,) = header.build(msgspec.structs.replace(view, interval=float(interval)), palette(), 120, 1)
        seen.append(line.text)
    return seen


async def test_a_paused_screen_stays_and_a_reading_that_cannot_be_used_ends_nothing() -> None:
    clock = Clock(scenes.START)
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        await pilot.press("space")
        clock.now += 5
        app.post_message(ReadFailed("the driver is gone"))
        await settle(app, pilot)
        assert {bar.age for bar in app.state.view().bars} == {None}
    clock = Clock(scenes.START)
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        usual = scenes.usual(1)
        first = usual.gpus[0]
        process = msgspec.structs.replace(first.processes[0], used_memory=1 << 63)
        gpu = msgspec.structs.replace(first, memory=Memory(), processes=(process, *first.processes[1:]))
        clock.now += 1
        await give(app, pilot, msgspec.structs.replace(usual, gpus=(gpu, *usual.gpus[1:])))
        assert "a reading cannot be used" in screen_text(app)
        await give(app, pilot, scenes.usual(2))
        assert "a reading cannot be used" not in screen_text(app)


@pytest.mark.parametrize(("reason", "width", "shown"), [
    ("nvmlDeviceGetMemoryInfo: the GPU is lost: it fell off the bus", 120, "the GPU is lost: it fell off the bus"),
    ("nvmlDeviceGetMemoryInfo: the GPU is lost: it fell off the bus", 200, "nvmlDeviceGetMemoryInfo: the GPU"),
    ("nvmlDeviceGetMemoryInfo: the GPU is lost: it fell off the bus", 80, "the GPU is lost"),
    ("no answer for 12 s (in nvmlDeviceGetComputeRunningProcesses_v3)", 80, "no answer for 12 s"),
    ("nvmlDeviceGetMemoryInfo: the GPU is lost: it fell off the bus", 60, "the GPU is lost: it fell off the bus"),
])  # fmt: skip
def test_a_reason_is_cut_by_what_matters_least(reason: str, width: int, shown: str) -> None:
    usual = scenes.usual()
    name = "NVIDIA H200 NVL"
    gone = msgspec.structs.replace(usual.gpus[0], name=name, state="failed", reason=reason, memory=Memory())
    view = view_of([usual, msgspec.structs.replace(usual, taken_at=usual.taken_at + 7, gpus=(gone,))])
    lines = [strip.text for strip in GpuPanel().build(view, palette(), width, 12)]
    text = "\n".join(lines)
    assert shown in text
    assert "7 s ago" in text
    assert "…" not in text


def test_a_clock_that_is_set_back_or_forward_hides_nothing() -> None:
    """What is shown is of the sample that came last, whatever time it claims."""
    usual = scenes.usual()
    for steps in ((0, 1, 2, -3600, -3599), (0, 1, -86_400 * 4000), (0, 86_400 * 400, 2)):
        samples = []
        for used, step in enumerate(steps, 5):
            memory = msgspec.structs.replace(usual.gpus[0].memory, used=used << 30)
            gpu = msgspec.structs.replace(usual.gpus[0], memory=memory)
            gpus = (gpu, *usual.gpus[1:])
            samples.append(msgspec.structs.replace(usual, taken_at=usual.taken_at + step, gpus=gpus))
        view = view_of(samples)
        first = GpuPanel().build(view, palette(), 120, 12)[0].text
        assert f"{4 + len(steps)}.0/" in first
        assert " ago" not in first
        assert list(rows_of(view))


@pytest.mark.parametrize(("failure", "lines"), [("no driver.", 3), ("no driver. " * 10, 2), ("no driver. " * 40, 3)])
def test_a_sentence_above_the_screen_is_shown_whole_or_not_at_all(failure: str, lines: int) -> None:
    hint = "New here? p chooses a preset to predict, x explains it, 1 to 4 are the screens, ? lists all keys."
    view = View(failure=failure, hint=hint)
    text = " ".join(line.text.strip() for line in Banner().build(view, palette(), 80, 3))
    assert len(Banner().lines(view, 80)) == lines
    assert (hint in text) is (len(failure) < 80)
    assert ("New here" in text) is (hint in text)
