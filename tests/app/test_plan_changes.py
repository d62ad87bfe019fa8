"""The changes that free memory, under the Plan screen's map."""

from pathlib import Path

from syrupy.assertion import SnapshotAssertion
from textual.widgets import Input

from tests.app.driver import climbing, dashboard, screen_text
from tests.app.fakes import FixedPresets
from tests.app.svg import SvgExtension
from tests.app.test_plan import Desk, planned, press, run_of, saved, words_of
from tests.app.test_process_columns import PALETTE
from vramtui.app.plan.model import PlanModel
from vramtui.app.plan.screen import Heatmap, PlanWords, change_lines
from vramtui.app.ui.chooser import Ask
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import CARDS
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.planner.planner import Edge, Effect, with_values, worthwhile
from vramtui.presets import PresetLibrary

REAL = PresetLibrary().get("gpt2-1.5b")


def effect(name: str, frees: int, largest: int | None = None) -> Effect:
    return Effect(
        mitigation=name, changes={}, cost="time", process=10 * GIB - frees, frees=frees, fits=True, largest=largest
    )


# --- which are shown -------------------------------------------------------------------------------------------------


def test_what_frees_most_comes_first_and_what_frees_nothing_not_at_all() -> None:
    effects = (effect("a", GIB), effect("b", 0), effect("c", 3 * GIB), effect("d", -GIB), effect("e", 1000))
    assert [one.mitigation for one in worthwhile(effects, 10 * GIB, ())] == ["c", "a"]


def test_of_a_server_what_makes_room_for_a_longer_context_is_worth_it_too() -> None:
    edges = (Edge(key="run.max_model_len", largest=4096, process=1, beyond=2, reason=""),)
    effects = (effect("a", 0, 4096), effect("b", 0, 8192), effect("c", 0, 9000), effect("d", GIB, 2048))
    assert [one.mitigation for one in worthwhile(effects, 10 * GIB, edges)] == ["d", "c", "b"]


def test_the_cursor_stays_on_its_change_while_others_are_found() -> None:
    model, few = PlanModel(), (effect("a", 3 * GIB), effect("b", GIB))
    for changes, at, chosen in ((few, 5, 1), ((effect("c", 9 * GIB), *few), None, 2), (few, -5, 0), ((), 1, 0)):
        model.changes = changes
        if at is not None:
            model.choose_change(at)
        assert model.change == chosen


# --- on the screen ---------------------------------------------------------------------------------------------------


async def test_a_change_is_chosen(snapshot: SnapshotAssertion) -> None:
    async with dashboard(climbing(), (80, 24)) as driver:
        await press(driver, "2")
        await press(driver, "t", "down")
        assert driver[0].parts.export.picture() == snapshot.use_extension(SvgExtension)


def test_each_says_what_it_frees_the_largest_first() -> None:
    plan = Desk([REAL], ANALYTIC).view()
    assert plan.side is not None
    assert plan.side.estimate is not None
    freed = [change.frees for change in plan.advice.changes]
    assert freed
    assert freed == sorted(freed, reverse=True)
    for change in plan.advice.changes:
        assert change.frees == plan.side.estimate.process - change.process


def test_a_server_shows_the_context_that_fits_and_what_makes_it_start() -> None:
    desk = Desk([PresetLibrary().get("llama-3.1-8b-serve")], ANALYTIC)
    plan = desk.view()
    assert [axis.name for axis in (plan.maps[0].x, plan.maps[0].y)] == ["share", "context"]
    assert any(change.largest for change in plan.advice.changes)
    lines = change_lines(plan, PALETTE, 120, 9, chosen=False)
    assert "then up to" in lines[0][0].text
    desk.model.card = CARDS["RTX5090"]
    desk.view()
    plan = desk.move(1, 0)
    assert plan.side is not None
    assert plan.side.workload is not None
    assert plan.side.estimate is None
    for words in ("does not start", "largest context: ", "cheapest to make it fit: "):
        assert words in words_of(plan)
    starting = next(change for change in plan.advice.changes if change.fits)
    desk.state.put(with_values(plan.side.workload, starting.changes))
    desk.model.go_home()
    plan = desk.view()
    assert plan.changed
    assert plan.side is not None
    assert plan.side.estimate is not None


async def test_keys_and_the_mouse_choose_one() -> None:
    async with dashboard(
        climbing(), (80, 24), presets=FixedPresets((REAL,)), preset=REAL.key, estimator=ANALYTIC
    ) as driver:
        await press(driver, "2", "v")
        words = driver[0].screen.query_one(PlanWords)
        assert not words.display
        await press(driver, "t")
        assert words.has_focus
        await press(driver, "t")
        assert isinstance(driver[0].focused, Heatmap)
        await press(driver, "t", "escape")
        assert isinstance(driver[0].focused, Heatmap)
        assert driver[0].screen.id == "plan"
        plan = await press(driver, "t")
        last = len(plan.advice.changes) - 1
        assert last > 1
        for keys, at in ((["down"], 1), (["up", "up"], 0), (["j", "j", "k"], 1), (["pagedown"] * 9, last)):
            plan = await press(driver, *keys)
            assert plan.change == at
            assert plan.advice.changes[at].mitigation[:20] in screen_text(driver[0])
        plan = await press(driver, *["pageup"] * 9)
        assert plan.change == 0
        await driver[1].click("#words", offset=(10, 4))
        assert (await planned(driver)).change == 2
    async with dashboard(climbing()[:1], presets=FixedPresets(())) as driver:
        await press(driver, "2", "t")
        assert isinstance(driver[0].focused, Heatmap)


async def test_enter_makes_the_change_to_the_cell_and_another_can_follow() -> None:
    async with dashboard(
        climbing(), presets=FixedPresets((REAL,)), preset=REAL.key, notifications=True, estimator=ANALYTIC
    ) as driver:
        before = await press(driver, "2", "right", "t")
        first = before.advice.changes[0]
        plan = await press(driver, "enter")
        assert plan.changed
        assert plan.side is not None
        assert plan.side.estimate is not None
        assert plan.side.estimate.process == first.process
        assert run_of(driver).batch_size == 10 if "run.batch_size" not in first.changes else 1
        assert first.mitigation not in [change.mitigation for change in plan.advice.changes]
        second = plan.advice.changes[0]
        plan = await press(driver, "enter")
        assert plan.side is not None
        assert plan.side.estimate is not None
        assert plan.side.estimate.process == second.process
        assert not (await press(driver, "u")).changed


async def test_the_cell_with_a_change_becomes_a_preset(tmp_path: Path) -> None:
    async with dashboard(
        climbing()[:1], presets=FixedPresets((REAL,)), preset=REAL.key, notifications=True, estimator=ANALYTIC
    ) as driver:
        plan = await press(driver, "2", "right", "t")
        at = next(at for at, change in enumerate(plan.advice.changes) if change.mitigation == "LoRA of rank 16")
        plan = await press(driver, *["down"] * at)
        await driver[1].press("w")
        await driver[1].pause()
        assert driver[0].screen.query_one(Input).value == "gpt2-1.5b-batch10-seq1024", (
            "what is not applied is not saved"
        )
        await driver[1].press("escape")
        await press(driver, "enter")
        await driver[1].press("w")
        await driver[1].pause()
        window = driver[0].screen
        assert isinstance(window, Ask)
        window.query_one(Input).value = "mine"
        await saved(driver, "enter")
        text = (tmp_path / "presets" / "mine.toml").read_text()
        assert 'target_modules = ["qkv_proj", "o_proj"]' in text
        assert run_of(driver).lora is not None
        assert (await planned(driver)).preset == "mine"
