import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Input

from tests.app.driver import Driver, climbing, dashboard, known, screen_text, settle, shown
from tests.app.fakes import PRESETS, FixedPresets, RoundEstimator
from tests.app.test_process_columns import PALETTE
from vramtui.app.help.dialog import Help
from vramtui.app.keys import PLAN_BINDINGS
from vramtui.app.plan.dialogs import CardChooser, PlanChooser
from vramtui.app.plan.model import AS_IN_FILE, PlanModel, PlanView
from vramtui.app.plan.screen import Heatmap, PlanScreen, PlanWords, change_lines, sentences
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.ui.chooser import Ask, Chooser
from vramtui.app.watch.preset_picker import PresetChooser
from vramtui.app.watch.screen import Watch
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import CARDS
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.planner.planner import Edge, Effect, with_values, worthwhile
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession
from vramtui.presets import PresetLibrary

LORA, INFER = (found.key for found in PRESETS)


async def planned(driver: Driver) -> PlanView:
    app, pilot = driver
    await settle(app, pilot)
    screen = app.screens.current
    assert isinstance(screen, PlanScreen)
    worker = app.parts.plan.worker
    while worker.is_busy or not is_told(screen):
        while worker.is_busy:  # drawn when it has ended, not beside it all the time
            await pilot.pause(0.01)
        await settle(app, pilot)
    return screen.shown


def is_told(screen: PlanScreen) -> bool:
    plan = screen.shown
    whole = all(shown.done == shown.total for shown in plan.maps)
    return whole and (plan.advice.is_whole or plan.side is None or plan.side.process is None)


async def press(driver: Driver, *keys: str) -> PlanView:
    await driver[1].press(*keys)
    return await planned(driver)


async def choose(driver: Driver, key: str, words: str) -> PlanView:
    """Press `key`, type `words` into the list that it opens, and choose what is left."""
    app, pilot = driver
    await pilot.press(key)
    await pilot.pause()
    assert isinstance(app.screen, Chooser)
    app.screen.query_one(Input).value = words
    await pilot.pause()
    await pilot.press("enter")
    return await planned(driver)


def at(plan: PlanView) -> tuple[object, object]:
    shown = plan.maps[0]
    x, y = plan.cursor
    return shown.x.amounts[x], shown.y.amounts[y]


def run_of(driver: Driver) -> TrainRun:
    panel = known(driver[0].state.view().panel)
    assert isinstance(panel.workload.run, TrainRun)
    return panel.workload.run


async def test_a_map(picture: SnapshotAssertion) -> None:
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        assert driver[0].parts.export.picture() == picture


async def test_two_presets_in_a_wide_terminal(picture: SnapshotAssertion) -> None:
    async with dashboard(climbing(), (200, 50)) as driver:
        await press(driver, "2")
        await choose(driver, "b", INFER)
        assert driver[0].parts.export.picture() == picture


async def test_without_colours(monkeypatch: pytest.MonkeyPatch, picture: SnapshotAssertion) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        assert driver[0].parts.export.picture() == picture


@pytest.mark.parametrize("theme", ["vramtui-light", "vramtui-ansi"])
async def test_themes_colour_what_fits(theme: str) -> None:
    """The terminal's sixteen colours cannot be mixed: there the figure is coloured, not its background."""
    async with dashboard(climbing()) as driver:
        driver[0].theme = theme
        await press(driver, "2", "right")
        cell = next(
            segment
            for strip in shown(driver[0])[5:9]
            for segment in strip
            if re.fullmatch(r" +\d+\.\d ? *", segment.text)
        )
        is_mixed = cell.style.bgcolor is not None and cell.style.bgcolor != driver[0].screen.rich_style.bgcolor
        assert is_mixed == (theme == "vramtui-light")


async def test_without_a_gpu_a_sample_or_a_preset() -> None:
    async with dashboard(climbing()[:1], (80, 24), presets=FixedPresets(())) as driver:
        plan = await press(driver, "2")
        assert "press p" in plan.problem.lower()
        assert plan.problem[:40] in screen_text(driver[0])
    state, model = DashboardState(MonitorSession(predictor=Predictor(RoundEstimator()))), PlanModel()
    state.take_presets(PRESETS)
    state.panel_key = LORA
    assert known(model.view(state).device).name == "H100"


class Desk:
    def __init__(self, presets: Sequence[PresetFile] = PRESETS, estimator: Estimator | None = None) -> None:
        self.estimator = estimator or RoundEstimator()
        self.state = DashboardState(MonitorSession(predictor=Predictor(self.estimator)))
        for sample in climbing():
            self.state.take(sample)
        self.state.take_presets(tuple(presets))
        self.state.panel_key = presets[0].key
        self.model = PlanModel()

    def view(self) -> PlanView:
        while True:
            view = self.model.view(self.state)
            if not self.model.jobs:
                return view
            for steps in dict(self.model.jobs).values():
                for _ in steps(self.estimator):
                    pass

    def move(self, across: int, down: int) -> PlanView:
        x, y = self.model.cursor
        self.model.go(x + across, y + down)
        return self.view()


def words_of(plan: PlanView) -> str:
    return "\n".join(text for _, text in sentences(plan))


def test_the_map_and_the_words_are_the_estimators() -> None:
    desk = Desk()
    plan = desk.view()
    for row in plan.maps[0].cells:
        for answer in row:
            assert answer.fits == (answer.process is not None and answer.process <= known(plan.device).total_memory)
    assert at(plan) == (4, 4096)
    for words in ("✓ fits GPU 0", "largest batch: ", "largest sequence: ", "smallest first"):
        assert words in words_of(plan)
    plan = desk.move(20, 0)
    assert "✗ does not fit GPU 0" in words_of(plan)
    assert "cheapest to make it fit: " in words_of(plan)
    impossible = desk.move(-30, 0), desk.move(3, -3)
    assert at(impossible[1]) == (4, 1536)
    assert "not possible: model.max_position_embeddings" in words_of(impossible[1])
    assert not impossible[1].advice.changes


def test_the_cursor_stops_at_the_edges_and_finds_what_fits() -> None:
    desk = Desk()
    desk.view()
    for across, down, cell in ((1, 0, (5, 4096)), (0, 1, (4, 6144)), (-40, 0, (1, 4096)), (0, 6, (4, 32768))):
        desk.model.go_home()
        assert (at(desk.view()), at(desk.move(across, down))) == ((4, 4096), cell)
    desk.model.go_home()
    assert desk.model.go_to_edge()
    plan = desk.view()
    x, y = plan.cursor
    row = [answer is not None and answer.fits for answer in plan.maps[0].cells[y]]
    assert row[x]
    assert not any(row[x + 1 :])
    desk.move(0, 24)
    assert not desk.model.go_to_edge()


def test_axes_are_chosen_swapped_and_drawn_against_every_other() -> None:
    desk = Desk()
    desk.view()
    assert desk.model.names == ("batch", "seq")
    desk.model.choose_axis("precision", across=True)
    assert desk.model.names == ("precision", "seq")
    desk.model.choose_axis("optimizer", across=False)
    desk.model.swap()
    assert desk.model.names == ("optimizer", "precision")
    desk.model.choose_axis("precision", across=True)
    assert desk.model.names == ("precision", "optimizer")
    desk = Desk()
    desk.view()
    names = [axis.name for axis in desk.model.axes]
    assert {"batch", "seq", "precision", "checkpoint", "optimizer", "LoRA", "GPUs", "sharding"} <= set(names)
    for name in names:
        desk.model.choose_axis(name, across=True)
        desk.view()
        plan = desk.move(1, 1)
        assert (plan.maps[0].x.name, plan.maps[0].done) == (name, plan.maps[0].total)


def test_the_preset_as_saved_and_sharding_taken_over_are_compared() -> None:
    desk = Desk()
    desk.model.second = AS_IN_FILE
    plan = desk.view()
    assert plan.other.estimate == plan.side.estimate
    plan = desk.move(1, 0)
    assert known(known(plan.side).estimate).process > known(plan.other.estimate).process
    assert (plan.other.what, plan.other.how) == (f"{LORA} as saved", "as saved")
    desk = Desk()
    desk.view()
    desk.model.choose_axis("sharding", across=True)
    desk.view()
    plan = desk.move(1, 0)
    assert plan.side.workload is not None
    desk.state.put(plan.side.workload)
    assert known(desk.state.view().panel).changed
    assert desk.view().changed
    desk.state.undo_steps()
    assert not desk.view().changed


async def test_what_it_worked_out_is_let_go_of_a_while_after_it_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.app.plan.controller.FORGET_AFTER", 0.05)
    async with dashboard(climbing()) as (app, pilot):
        await settle(app, pilot)
        before = await press((app, pilot), "2", "right")
        plan = app.parts.plan.model
        assert len(plan.maps) == 1
        await pilot.press("1")
        while plan.maps:
            await pilot.pause(0.01)
        assert (plan.heatmap, len(plan.advice)) == (None, 0)
        after = await press((app, pilot), "2")
        assert (after.maps[0].cells, after.cursor) == (before.maps[0].cells, before.cursor)
        monkeypatch.setattr("vramtui.app.plan.controller.FORGET_AFTER", 60.0)
        await pilot.press("1")
        await settle(app, pilot)
        assert len(plan.maps) > 0


CURSOR_KEYS: list[tuple[list[str], tuple[int, int]]] = [
    (["l", "h"], (4, 4096)), (["left", "left"], (2, 4096)), (["down"], (4, 6144)), (["j", "k"], (4, 4096)),
    (["up"], (4, 3072)), (["pagedown", "pageup"], (4, 4096)), (["ctrl+right"], (12, 4096)),
    (["ctrl+right", "ctrl+left"], (4, 4096)), (["right", "down", "home"], (4, 4096)),
]  # fmt: skip


async def test_lists_choose_axes_card_and_comparison() -> None:
    async with dashboard(climbing()) as driver:
        before = await press(driver, "2")
        assert (await choose(driver, "A", "optimizer")).maps[0].y.name == "optimizer"
        plan = await choose(driver, "a", "precision")
        await driver[1].press("a", "escape")
        assert (await planned(driver)).maps[0].x.name == "precision"
        plan = await choose(driver, "g", "RTX4090")
        assert known(plan.device).name == "RTX4090"
        assert "on RTX4090" in screen_text(driver[0])
        assert (await choose(driver, "g", "GPU 1,")).where.startswith("GPU 1")
        assert (await choose(driver, "g", "as on Watch")).device == before.device
        await choose(driver, "b", "its saved file")
        assert "same" in screen_text(driver[0])
        for name, words in (("H200", "limit of what fits"), ("RTX2060", "nothing here fits")):
            await choose(driver, "g", name)
            await choose(driver, "a", "batch")
            await choose(driver, "A", "seq")
            assert words in screen_text(driver[0])


async def test_every_card_is_answered() -> None:
    async with dashboard(climbing(), (120, 35)) as driver:
        await press(driver, "2")
        await driver[1].press("g")
        window = driver[0].screen
        assert isinstance(window, CardChooser)
        assert driver[0].parts.plan.model.card_tables
        while not window.is_whole:
            await driver[1].pause(0.05)
        window.fill_in()
        text = screen_text(driver[0])
        assert text.index("this machine") < text.index("data centre") < text.index("A100-40GB")
        for words in ("GPU 0, NVIDIA A100-SXM4…", "max batch", "✗ −", "✓ "):
            assert words in text
        await driver[1].press("escape")
        await planned(driver)
        assert not driver[0].parts.plan.model.card_tables


async def test_pages_turn_where_there_is_no_room() -> None:
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        first, second = driver[0].screen.query_one("#map"), driver[0].screen.query_one("#second")
        await driver[1].press("v")
        assert first.display
        assert len((await choose(driver, "b", INFER)).maps) == 2
        assert (first.display, second.display) == (True, False)
        await press(driver, "v")
        assert (first.display, second.display) == (False, True)
        assert at(await press(driver, "right")) == (5, 4096)
        await choose(driver, "b", "no comparison")
        assert (first.display, second.display) == (True, False)
    async with dashboard(climbing(), (200, 50)) as driver:
        await press(driver, "2")
        await choose(driver, "b", INFER)
        screen = driver[0].screen
        assert screen.query_one("#map").display
        assert screen.query_one("#second").display
    async with dashboard(climbing(), (80, 24)) as driver:
        await press(driver, "2")
        assert "largest batch" in screen_text(driver[0])
        await press(driver, "v")
        assert "activations" in screen_text(driver[0])
        await press(driver, "v")
        assert "largest batch" in screen_text(driver[0])


async def test_keys_and_the_mouse_and_a_cell_that_watch_estimates() -> None:
    async with dashboard(climbing(), notifications=True) as driver:
        await press(driver, "2", "right", "right", "down")
        plan = await press(driver, "enter")
        assert at(plan) == (6, 6144)
        assert plan.changed
        assert (run_of(driver).batch_size, run_of(driver).sequence_length) == (6, 6144)
        assert "Watch estimates batch 6 · seq 6,144 now" in screen_text(driver[0])
        assert at(await press(driver, "u")) == (4, 4096)
        assert run_of(driver).batch_size == 4
        app, pilot = driver
        await press(driver, "2")
        assert isinstance(app.focused, Heatmap)
        text = screen_text(app)
        assert "●4" in text
        assert "┃" in text
        await pilot.click("#map", offset=(20, 6))
        assert (await planned(driver)).cursor == (2, 4)
        for keys, cell in CURSOR_KEYS:
            assert at(await press(driver, "home")) == (4, 4096)
            assert at(await press(driver, *keys)) == cell, keys
        await press(driver, "up", "up", "up", "enter")
        assert "batch 4 · seq 1,536 is not possible" in screen_text(app)
        assert run_of(driver).sequence_length == 4096
        await press(driver, *["down"] * 24, "f")
        assert "Nothing in this row fits." in screen_text(app)
        await press(driver, "x")
        assert app.parts.plan.model.names == ("seq", "batch")
        await pilot.click("PlanBar", offset=(10, 0))
        await pilot.pause()
        assert isinstance(app.screen, PlanChooser)
        await pilot.press("escape", "escape")
        await settle(app, pilot)
        assert isinstance(app.screen, Watch)
        assert not app.parts.plan.worker.is_busy


async def saved(driver: Driver, *keys: str) -> None:
    await driver[1].press(*keys)
    while not any(note.title in {"Saved as a preset", "Not saved"} for note in driver[0].announced):
        await driver[1].pause(0.01)
    await settle(*driver)


async def test_a_cell_becomes_a_preset(tmp_path: Path) -> None:
    real = PresetLibrary().get("gpt2-1.5b")
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "taken.toml").write_text("kept")
    # Wide enough for the sentence about a file, whatever folder tests are given.
    async with dashboard(
        climbing()[:1], (200, 50), presets=FixedPresets((real,)), preset="gpt2-1.5b", notifications=True
    ) as driver:
        app, pilot = driver
        await press(driver, "2", "right")
        await pilot.press("w")
        await pilot.pause()
        window = app.screen
        assert isinstance(window, Ask)
        assert window.query_one(Input).value == "gpt2-1.5b-batch10-seq1024"
        window.query_one(Input).value = "no/name"
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is window
        window.query_one(Input).value = "taken"
        await saved(driver, "enter")
        assert "exists already" in screen_text(app)
        assert (tmp_path / "presets" / "taken.toml").read_text() == "kept"
        assert app.state.panel_key == "gpt2-1.5b"
        await pilot.press("w")
        await pilot.pause()
        app.screen.query_one(Input).value = "mine"
        app.announced.clear()
        await saved(driver, "enter")
        assert "batch_size = 10" in (tmp_path / "presets" / "mine.toml").read_text()
        assert app.state.panel_key == "mine"
        plan = await planned(driver)
        assert (plan.preset, at(plan), plan.changed) == ("mine", (10, 1024), False)
        assert "mine.toml" in screen_text(app)


async def test_help_and_palette_list_every_key_and_p_chooses_a_preset() -> None:
    async with dashboard(climbing(), (120, 120)) as driver:
        await press(driver, "2")
        titles = {command.title for command in driver[0].get_system_commands(driver[0].screen)}
        missing = {binding.tooltip for binding in PLAN_BINDINGS if binding.tooltip not in titles}
        assert missing <= {"Next page (narrow terminals)"}
        await driver[1].press("question_mark")
        await driver[1].pause()
        assert isinstance(driver[0].screen, Help)
        text = screen_text(driver[0])
        assert "Map of what fits (focused)" in text
        for words in ("Choose the horizontal axis", "Save the cell's variant", "Six rows down"):
            assert words in text
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        await driver[1].press("p")
        await driver[1].pause()
        assert isinstance(driver[0].screen, PresetChooser)
        driver[0].screen.query_one(Input).value = INFER
        await driver[1].pause()
        await driver[1].press("enter")
        plan = await planned(driver)
        assert plan.preset == INFER
        assert at(plan) == (16, 1024)


@pytest.mark.parametrize("axis", ["optimizer", "precision", "sharding"])
async def test_words_above_the_columns_are_told_apart(axis: str) -> None:
    async with dashboard(climbing(), (80, 24)) as driver:
        await press(driver, "2")
        plan = await choose(driver, "a", axis)
        seen: set[str] = set()
        for _ in plan.maps[0].x.labels:
            heading = screen_text(driver[0]).splitlines()[3]
            seen |= set(heading.replace("●", " ").replace("as is", "as-is").strip("│ ").split())
            plan = await press(driver, "right")
        assert len(seen - {"seq"}) == len(plan.maps[0].x.labels)


REAL = PresetLibrary().get("gpt2-1.5b")


def effect(name: str, frees: int, largest: int | None = None) -> Effect:
    return Effect(
        mitigation=name, changes={}, cost="time", process=10 * GIB - frees, frees=frees, fits=True, largest=largest
    )


def test_what_frees_most_comes_first_and_the_cursor_stays_on_its_change() -> None:
    effects = (effect("a", GIB), effect("b", 0), effect("c", 3 * GIB), effect("d", -GIB), effect("e", 1000))
    assert [one.mitigation for one in worthwhile(effects, 10 * GIB, ())] == ["c", "a"]
    edges = (Edge(key="run.max_model_len", largest=4096, process=1, beyond=2, reason=""),)
    longer = (effect("a", 0, 4096), effect("b", 0, 8192), effect("c", 0, 9000), effect("d", GIB, 2048))
    assert [one.mitigation for one in worthwhile(longer, 10 * GIB, edges)] == ["d", "c", "b"]
    model, few = PlanModel(), (effect("a", 3 * GIB), effect("b", GIB))
    for changes, at, chosen in ((few, 5, 1), ((effect("c", 9 * GIB), *few), None, 2), (few, -5, 0), ((), 1, 0)):
        model.changes = changes
        if at is not None:
            model.choose_change(at)
        assert model.change == chosen
    plan = Desk([REAL], ANALYTIC).view()
    freed = [change.frees for change in plan.advice.changes]
    assert freed
    assert freed == sorted(freed, reverse=True)
    for change in plan.advice.changes:
        assert change.frees == known(known(plan.side).estimate).process - change.process


async def test_a_change_is_chosen(picture: SnapshotAssertion) -> None:
    async with dashboard(climbing(), (80, 24)) as driver:
        await press(driver, "2")
        await press(driver, "t", "down")
        assert driver[0].parts.export.picture() == picture


def test_a_server_shows_the_context_that_fits_and_what_makes_it_start() -> None:
    desk = Desk([PresetLibrary().get("llama-3.1-8b-serve")], ANALYTIC)
    plan = desk.view()
    assert [axis.name for axis in (plan.maps[0].x, plan.maps[0].y)] == ["share", "context"]
    assert any(change.largest for change in plan.advice.changes)
    assert "then up to" in change_lines(plan, PALETTE, 120, 9, chosen=False)[0][0].text
    desk.model.card = CARDS["RTX5090"]
    desk.view()
    plan = desk.move(1, 0)
    assert plan.side.workload is not None
    assert plan.side.estimate is None
    for words in ("does not start", "largest context: ", "cheapest to make it fit: "):
        assert words in words_of(plan)
    starting = next(change for change in plan.advice.changes if change.fits)
    desk.state.put(with_values(plan.side.workload, starting.changes))
    desk.model.go_home()
    plan = desk.view()
    assert plan.changed
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
        assert (await press(driver, *["pageup"] * 9)).change == 0
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
        assert known(known(plan.side).estimate).process == first.process
        assert run_of(driver).batch_size == 10 if "run.batch_size" not in first.changes else 1
        assert first.mitigation not in [change.mitigation for change in plan.advice.changes]
        second = plan.advice.changes[0]
        assert known(known((await press(driver, "enter")).side).estimate).process == second.process
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
        assert 'target_modules = ["qkv_proj", "o_proj"]' in (tmp_path / "presets" / "mine.toml").read_text()
        assert run_of(driver).lora is not None
        assert (await planned(driver)).preset == "mine"
