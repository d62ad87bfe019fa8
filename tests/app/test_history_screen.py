from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Input

from tests.app import scenes
from tests.app.driver import Driver, climbing, dashboard, known, screen_text, settle
from tests.app.driver import press as text_after
from vramtui.app.history.screen import HistoryModel, HistoryScreen, HistoryView, RunErrors, RunRows, RunWindow, bars
from vramtui.app.ui.chooser import Confirm
from vramtui.app.ui.lines import SortHeading
from vramtui.app.ui.view_screen import KeyBar
from vramtui.app.watch.screen import Watch
from vramtui.cli.common.demo_jobs import demo_runs
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.runs.run import RUN_COLUMNS, StoredRun
from vramtui.core.schema.settings import Settings

HOST = "demo-gpu01"


class Shelf:
    note = "the demo's, not real"

    def __init__(self, runs: tuple[StoredRun, ...] = (), problem: str = "") -> None:
        self.kept = runs
        self.problem = problem
        self.reported: list[int] = []
        self.read = 0

    def stamp(self) -> object:
        return (len(self.kept), self.problem)

    def runs(self) -> tuple[StoredRun, ...]:
        self.read += 1
        if self.problem:
            raise UserError(self.problem)
        return self.kept

    def forget(self, number: int) -> None:
        self.kept = tuple(kept for kept in self.kept if kept.id != number)

    def report(self, kept: StoredRun) -> list[str]:
        if self.problem:
            raise UserError(self.problem)
        self.reported.append(kept.id)
        return [f"/reports/vramtui-run-{kept.id}.html"]


@cache
def demo() -> tuple[StoredRun, ...]:
    return demo_runs(scenes.START, HOST)


def shelf() -> Shelf:
    return Shelf(demo())


def past(driver: Driver) -> HistoryView:
    screen = driver[0].screens.current
    assert isinstance(screen, HistoryScreen)
    return screen.shown


async def until(driver: Driver, true: Callable[[], bool]) -> None:
    for _ in range(6000):
        if true():
            await settle(*driver)
            return
        await driver[1].pause(0.01)
    raise AssertionError(f"waited in vain; on the screen:\n{screen_text(driver[0])}")


async def press(driver: Driver, *keys: str) -> HistoryView:
    await driver[1].press(*keys)
    await settle(*driver)
    return past(driver)


@asynccontextmanager
async def history(
    runs: Shelf, size: tuple[int, int] = (120, 35), settings: Settings | None = None
) -> AsyncIterator[Driver]:
    async with dashboard(climbing(), size, notifications=True, settings=settings) as driver:
        driver[0].parts.history.store = runs
        await driver[1].press("4")
        await until(driver, lambda: bool(runs.read) and not driver[0].parts.history.is_reading)
        yield driver


async def test_with_runs(picture: SnapshotAssertion) -> None:
    async with history(shelf(), (200, 50)) as (app, _):
        assert app.parts.export.picture() == picture


async def test_one_opened(picture: SnapshotAssertion) -> None:
    async with history(shelf(), (80, 24)) as driver:
        await press(driver, "down", "enter")
        assert driver[0].parts.export.picture() == picture


async def test_without_runs_and_beside_the_list_in_a_large_terminal() -> None:
    async with history(Shelf(), (80, 24)) as driver:
        text = screen_text(driver[0])
        assert "No runs recorded yet." in text
        assert "No finished run has both" in text
        for key in ("enter", "s", "d"):
            await press(driver, key)
            assert isinstance(driver[0].screen, HistoryScreen)
        assert "No run is selected" in screen_text(driver[0])
    async with history(shelf(), size=(200, 50)) as driver:
        text = screen_text(driver[0])
        assert "LASTED" in text
        first, second = (kept for kept in past(driver).runs[:2])
        assert f"Run {first.id}" in text
        assert first.run.command in text
        text = await text_after(*driver, "down")
        assert f"Run {second.id}" in text
        assert second.run.command[:20] in text


async def test_a_small_terminal_has_one_kind_of_errors() -> None:
    async with history(shelf(), (80, 24)) as driver:
        assert driver[0].screen.query_one(RunErrors).border_subtitle == "1 of 3 kinds"


def test_sorting() -> None:
    model = HistoryModel()
    model.take(demo())
    assert model.view(0.0).sort == "when"
    for column in RUN_COLUMNS[1:5]:
        model.sort_next(1)
        assert model.sort == column
    sizes = [kept.run.predicted.process or 0 for kept in model.view(0.0).runs]
    assert model.sort == "predicted"
    assert sizes == sorted(sizes, reverse=True)
    model.sort_by("predicted")
    assert [kept.run.predicted.process or 0 for kept in model.view(0.0).runs] == sorted(sizes)
    for _ in range(5):
        model.sort_next(-1)
    assert model.sort == RUN_COLUMNS[-1]


async def test_keys_and_clicks_sort_choose_and_open() -> None:
    async with history(shelf(), (200, 50)) as driver:
        assert (await press(driver, ">")).sort == "host"
        assert (await press(driver, "<")).sort == "when"
        before = [kept.id for kept in past(driver).runs]
        assert [kept.id for kept in (await press(driver, "o")).runs] == before[::-1]
        await driver[1].click(SortHeading, offset=(50, 0))
        await settle(*driver)
        assert past(driver).sort == "preset"
    async with history(shelf()) as driver:
        await driver[1].click(RunRows, offset=(5, 3))
        await settle(*driver)
        assert past(driver).chosen is past(driver).runs[3]
        await driver[1].click(RunRows, offset=(5, 3), times=2)
        await settle(*driver)
        assert isinstance(driver[0].screen, RunWindow)


async def test_filter() -> None:
    async with history(shelf()) as driver:
        view = await press(driver, "slash", *"gpt2")
        assert {kept.run.preset for kept in view.runs} == {"gpt2-124m"}
        assert [errors.spread.runs for errors in view.errors] == [len(view.runs)]
        await press(driver, "enter")
        assert isinstance(driver[0].focused, RunRows)
        assert "of 17" in screen_text(driver[0])
        assert len((await press(driver, "escape")).runs) == 17
        assert isinstance(driver[0].screen, HistoryScreen)
        assert (await press(driver, "slash", *"nothing like it")).runs == ()
        assert "No run matches" in screen_text(driver[0])
        assert len((await press(driver, "escape")).runs) == 17
        assert not driver[0].screen.query(Input)
        await driver[1].press("escape")
        await settle(*driver)
        assert isinstance(driver[0].screen, Watch)


async def test_a_run_without_preset_or_graph() -> None:
    bare = demo()[1]
    run = msgspec.structs.replace(
        bare.run, preset="", method="", workload={}, predicted=Ledger(), times=(), values=(), command="\x1b[2J[red]x"
    )
    async with history(Shelf((StoredRun(1, run),))) as driver:
        text = await text_after(*driver, "enter")
        for words in ("No preset was used.", "no prediction", "␛[2J[red]x"):
            assert words in text
        assert "\x1b" not in text


@pytest.mark.usefixtures("painted")  # a notice over a window is among its lines only after it was painted
@pytest.mark.parametrize("keys", [("s",), ("enter", "s")], ids=["list", "window"])
async def test_report(keys: tuple[str, ...]) -> None:
    runs = shelf()
    async with history(runs) as driver:
        await press(driver, "down", *keys)
        await until(driver, lambda: bool(runs.reported))
        await until(driver, lambda: "/reports/vramtui-run-" in screen_text(driver[0]))
        assert runs.reported == [past(driver).runs[1].id]


async def test_reports_that_cannot_be_written_and_histories_that_cannot_be_read_are_sentences() -> None:
    runs = shelf()
    async with history(runs) as driver:
        runs.problem = "the report was not written: the disk that holds /reports is full"
        await press(driver, "s")
        await until(driver, lambda: "disk that holds" in screen_text(driver[0]))
    async with history(Shelf(problem="the history /h cannot be used: file is not a database")) as driver:
        assert "file is not a database" in screen_text(driver[0])


@pytest.mark.parametrize("keys", [("d",), ("enter", "d")], ids=["list", "window"])
async def test_forgetting_asks_first(keys: tuple[str, ...]) -> None:
    runs = shelf()
    async with history(runs) as driver:
        gone = past(driver).runs[1].id
        await press(driver, "down", *keys)
        await until(driver, lambda: isinstance(driver[0].screen, Confirm))
        await press(driver, "n")
        assert len(runs.kept) == 17
        await press(driver, "d")
        await until(driver, lambda: isinstance(driver[0].screen, Confirm))
        await press(driver, "y")
        await until(driver, lambda: len(past(driver).runs) == 16)
        assert gone not in {kept.id for kept in past(driver).runs}
        chosen = known(past(driver).chosen)
        assert chosen is past(driver).runs[1]  # the one that stands in its place


async def test_a_run_that_goes_on_is_not_deleted() -> None:
    runs = shelf()
    async with history(runs) as driver:
        chosen = known(past(driver).chosen)
        assert chosen.run.ending == "running"
        await press(driver, "d")
        assert isinstance(driver[0].screen, HistoryScreen)
        assert f"run {chosen.id} is still running" in screen_text(driver[0])
        assert len(runs.kept) == 17
    runs = shelf()
    async with history(runs) as driver:
        app = driver[0]
        assert runs.read == 1
        app.parts.history.read()
        await until(driver, lambda: not app.parts.history.is_reading)
        assert runs.read == 1
        runs.kept = runs.kept[1:]
        app.parts.history.read()
        await until(driver, lambda: len(past(driver).runs) == 16)
        assert runs.read == 2


async def test_one_run_opened_with_the_keys_of_the_screen() -> None:
    async with history(shelf()) as driver:
        chosen = past(driver).runs[1]
        await press(driver, "down", "enter")
        assert isinstance(driver[0].screen, RunWindow)
        text = screen_text(driver[0])
        for words in (f"Run {chosen.id} · {chosen.run.preset}", "hidden_size", "predicted"):
            assert words in text
        scroll = driver[0].screen.query_one("#all")
        for keys, moved in ((("down", "j"), 2), (("up",), 1), (("k",), 0), (("pagedown",), 9), (("pageup",), 0)):
            await press(driver, *keys)
            assert (scroll.scroll_offset.y > 0) == (moved > 0)
        await press(driver, "escape")
        assert isinstance(driver[0].screen, HistoryScreen)
    async with history(shelf()) as driver:
        bar = driver[0].screen.query_one(KeyBar)
        assert {"open", "filter", "report", "delete"} <= {binding.description for binding in bar.bindings_shown()}
        assert "No problems" in await text_after(*driver, "exclamation_mark")


def test_a_histogram_shows_every_run() -> None:
    rows = bars((1, 0, 100, 50, 0, 0, 0, 0, 3))
    assert len(rows) == 2
    lower = [rows[1][at * 4 : at * 4 + 3] for at in range(9)]
    assert [cell.strip() != "" for cell in lower] == [True, False, True, True, False, False, False, False, True]
    assert rows[0][8:11] == "⣿⣿⣿"
    assert bars((0,) * 9) == [" " * 36, " " * 36]
