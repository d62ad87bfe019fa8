"""The Plan screen: its pictures, its keys, and what becomes of a cell."""

import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Input

from tests.app.driver import Driver, climbing, dashboard, screen_text, settle, shown
from tests.app.fakes import PRESETS, FixedPresets
from tests.app.svg import SvgExtension
from vramtui.app.help.dialog import Help
from vramtui.app.keys import PLAN_BINDINGS
from vramtui.app.plan.dialogs import CardChooser, PlanChooser, PlanName
from vramtui.app.plan.heatmap import Heatmap
from vramtui.app.plan.model import PlanView
from vramtui.app.plan.screen import PlanScreen
from vramtui.app.ui.chooser import Chooser
from vramtui.app.watch.preset_picker import PresetChooser
from vramtui.app.watch.screen import Watch
from vramtui.core.schema.workload import TrainRun
from vramtui.presets import PresetLibrary

LORA, INFER = (found.key for found in PRESETS)


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SvgExtension)


async def planned(driver: Driver) -> PlanView:
    """The screen with everything known."""
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
    """Whether all that can be known stands on the screen."""
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
    """The values under the cursor."""
    shown = plan.maps[0]
    x, y = plan.cursor
    return shown.x.amounts[x], shown.y.amounts[y]


def run_of(driver: Driver) -> TrainRun:
    panel = driver[0].state.view().panel
    assert panel is not None
    assert isinstance(panel.workload.run, TrainRun)
    return panel.workload.run


# --- pictures --------------------------------------------------------------------------------------------------------


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
        assert cell.style is not None
        assert cell.style.color is not None
        is_mixed = cell.style.bgcolor is not None and cell.style.bgcolor != driver[0].screen.rich_style.bgcolor
        assert is_mixed == (theme == "vramtui-light")


async def test_without_a_preset() -> None:
    async with dashboard(climbing()[:1], (80, 24), presets=FixedPresets(())) as driver:
        plan = await press(driver, "2")
        assert "press p" in plan.problem.lower()
        assert plan.problem[:40] in screen_text(driver[0])


# --- what stands there -----------------------------------------------------------------------------------------------


async def test_the_map_is_the_estimators_and_its_edge_is_drawn() -> None:
    async with dashboard(climbing()) as driver:
        plan = await press(driver, "2")
        assert plan.device is not None
        for row in plan.maps[0].cells:
            for answer in row:
                assert answer is not None
                assert answer.fits == (answer.process is not None and answer.process <= plan.device.total_memory)
        assert at(plan) == (4, 4096)
        text = screen_text(driver[0])
        assert "●4" in text
        assert "┃" in text
        assert plan.side is not None
        assert plan.side.estimate is not None
        assert f"{plan.side.estimate.process / 2**30:.1f}" in text


async def test_a_cell_that_cannot_be_says_why() -> None:
    async with dashboard(climbing(), notifications=True) as driver:
        plan = await press(driver, "2", "up", "up", "up")
        assert at(plan) == (4, 1536)
        text = screen_text(driver[0])
        assert "not possible: model.max_position_embeddings" in text
        await driver[1].press("enter")
        await driver[1].pause()
        assert "batch 4 · seq 1,536 is not possible" in screen_text(driver[0])
        assert run_of(driver).sequence_length == 4096


async def test_the_planners_words() -> None:
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        text = screen_text(driver[0])
        assert "✓ fits GPU 0" in text
        assert "largest batch: " in text
        assert "largest sequence: " in text
        assert "smallest first" in text
        await press(driver, *["right"] * 20)
        text = screen_text(driver[0])
        assert "✗ does not fit GPU 0" in text
        assert "cheapest to make it fit: " in text


async def test_without_a_gpu_and_without_a_sample() -> None:
    async with dashboard((), preset=LORA) as driver:
        plan = await press(driver, "2")
        assert plan.device is not None
        assert plan.device.name == "H100"
        assert "fits" in screen_text(driver[0])


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_there_and_back() -> None:
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        assert isinstance(driver[0].focused, Heatmap)
        await driver[1].press("escape")
        await settle(*driver)
        assert isinstance(driver[0].screen, Watch)
        assert not driver[0].parts.plan.worker.is_busy


CURSOR_KEYS: list[tuple[list[str], tuple[int, int]]] = [
    (["right"], (5, 4096)),
    (["l", "h"], (4, 4096)),
    (["left", "left"], (2, 4096)),
    (["down"], (4, 6144)),
    (["j", "k"], (4, 4096)),
    (["up"], (4, 3072)),
    (["pagedown"], (4, 32768)),
    (["pagedown", "pageup"], (4, 4096)),
    (["ctrl+right"], (12, 4096)),
    (["ctrl+right", "ctrl+left"], (4, 4096)),
    (["left"] * 40, (1, 4096)),
    (["right", "down", "home"], (4, 4096)),
]


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


async def test_the_cursor() -> None:
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        for keys, cell in CURSOR_KEYS:
            assert at(await press(driver, "home")) == (4, 4096)
            assert at(await press(driver, *keys)) == cell, keys


async def test_the_edge_of_a_row() -> None:
    async with dashboard(climbing(), notifications=True) as driver:
        await press(driver, "2")
        plan = await press(driver, "f")
        x, y = plan.cursor
        row = [answer is not None and answer.fits for answer in plan.maps[0].cells[y]]
        assert row[x]
        assert not any(row[x + 1 :])
        plan = await press(driver, *["down"] * 24, "f")
        assert "Nothing in this row fits." in screen_text(driver[0])


async def test_axes_are_chosen_and_swapped() -> None:
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        plan = await choose(driver, "a", "precision")
        assert (plan.maps[0].x.name, plan.maps[0].y.name) == ("precision", "seq")
        plan = await choose(driver, "A", "optimizer")
        assert (plan.maps[0].x.name, plan.maps[0].y.name) == ("precision", "optimizer")
        plan = await press(driver, "x")
        assert (plan.maps[0].x.name, plan.maps[0].y.name) == ("optimizer", "precision")
        plan = await choose(driver, "a", "precision")
        assert (plan.maps[0].x.name, plan.maps[0].y.name) == ("precision", "optimizer")
        await driver[1].press("a", "escape")
        plan = await planned(driver)
        assert plan.maps[0].x.name == "precision"


async def test_every_axis_can_be_drawn_against_every_other() -> None:
    async with dashboard(climbing(), (80, 24)) as driver:
        await press(driver, "2")
        names = [axis.name for axis in driver[0].parts.plan.model.axes]
        assert {"batch", "seq", "precision", "checkpoint", "optimizer", "LoRA", "GPUs", "sharding"} <= set(names)
        for name in names:
            driver[0].parts.plan.model.choose_axis(name, across=True)
            plan = await press(driver, "right", "down")
            assert plan.maps[0].x.name == name
            assert plan.maps[0].done == plan.maps[0].total


async def test_the_card_is_chosen() -> None:
    async with dashboard(climbing()) as driver:
        before = await press(driver, "2")
        plan = await choose(driver, "g", "RTX4090")
        assert plan.device is not None
        assert plan.device.name == "RTX4090"
        assert "on RTX4090" in screen_text(driver[0])
        plan = await choose(driver, "g", "GPU 1,")
        assert plan.where.startswith("GPU 1")
        plan = await choose(driver, "g", "as on Watch")
        assert plan.device == before.device


async def test_every_card_is_answered() -> None:
    """Which card does it need: by group, with what is left and the largest batch of each."""
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
        assert "GPU 0, NVIDIA A100-SXM4…" in text
        assert "max batch" in text
        assert "✗ −" in text
        assert "✓ " in text
        await driver[1].press("escape")
        await planned(driver)
        assert not driver[0].parts.plan.model.card_tables


async def test_two_maps_turn_pages_where_there_is_no_room() -> None:
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        first, second = driver[0].screen.query_one("#map"), driver[0].screen.query_one("#second")
        await driver[1].press("v")
        assert first.display
        plan = await choose(driver, "b", INFER)
        assert len(plan.maps) == 2
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


async def test_pages_of_a_narrow_terminal() -> None:
    async with dashboard(climbing(), (80, 24)) as driver:
        await press(driver, "2")
        assert "largest batch" in screen_text(driver[0])
        await press(driver, "v")
        assert "activations" in screen_text(driver[0])
        await press(driver, "v")
        assert "largest batch" in screen_text(driver[0])


async def test_beside_its_own_file() -> None:
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        plan = await choose(driver, "b", "its saved file")
        assert plan.other is not None
        assert plan.side is not None
        assert plan.other.estimate == plan.side.estimate
        assert "same" in screen_text(driver[0])
        plan = await press(driver, "right")
        assert plan.other is not None
        assert plan.other.estimate is not None
        assert plan.side is not None
        assert plan.side.estimate is not None
        more = plan.side.estimate.process - plan.other.estimate.process
        assert f"+{more / 2**30:.2f}" in screen_text(driver[0])


async def test_a_cell_becomes_what_watch_estimates() -> None:
    async with dashboard(climbing(), notifications=True) as driver:
        await press(driver, "2", "right", "right", "down")
        plan = await press(driver, "enter")
        assert at(plan) == (6, 6144)
        assert plan.changed
        assert (run_of(driver).batch_size, run_of(driver).sequence_length) == (6, 6144)
        assert "Watch estimates batch 6 · seq 6,144 now" in screen_text(driver[0])
        plan = await press(driver, "u")
        assert at(plan) == (4, 4096)
        assert run_of(driver).batch_size == 4


async def test_sharding_taken_over_is_marked_as_a_change() -> None:
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        await choose(driver, "a", "sharding")
        await press(driver, "right", "enter")
        panel = driver[0].state.view().panel
        assert panel is not None
        assert panel.workload.parallel is not None
        assert panel.changed
        await press(driver, "u")
        panel = driver[0].state.view().panel
        assert panel is not None
        assert panel.workload.parallel is None
        assert not panel.changed


async def saved(driver: Driver, *keys: str) -> None:
    await driver[1].press(*keys)
    while not any(note.title in {"Saved as a preset", "Not saved"} for note in driver[0].announced):
        await driver[1].pause(0.01)
    await settle(*driver)


async def test_a_cell_becomes_a_preset(tmp_path: Path) -> None:
    real = PresetLibrary().get("gpt2-1.5b")
    # Wide enough for the sentence about a file, whatever folder tests are given.
    async with dashboard(
        climbing()[:1], (200, 50), presets=FixedPresets((real,)), preset="gpt2-1.5b", notifications=True
    ) as driver:
        await press(driver, "2", "right")
        await driver[1].press("w")
        await driver[1].pause()
        window = driver[0].screen
        assert isinstance(window, PlanName)
        assert window.query_one(Input).value == "gpt2-1.5b-batch10-seq1024"
        window.query_one(Input).value = "no/name"
        await driver[1].press("enter")
        await driver[1].pause()
        assert driver[0].screen is window
        window.query_one(Input).value = "mine"
        await saved(driver, "enter")
        path = tmp_path / "presets" / "mine.toml"
        assert "batch_size = 10" in path.read_text()
        assert driver[0].state.panel_key == "mine"
        plan = await planned(driver)
        assert (plan.preset, at(plan), plan.changed) == ("mine", (10, 1024), False)
        assert "mine.toml" in screen_text(driver[0])


async def test_a_name_that_is_taken_is_said(tmp_path: Path) -> None:
    real = PresetLibrary().get("gpt2-1.5b")
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "mine.toml").write_text("kept")
    # Wide enough for the sentence about a file, whatever folder tests are given.
    async with dashboard(
        climbing()[:1], (200, 50), presets=FixedPresets((real,)), preset="gpt2-1.5b", notifications=True
    ) as driver:
        await press(driver, "2")
        await driver[1].press("w")
        await driver[1].pause()
        driver[0].screen.query_one(Input).value = "mine"
        await saved(driver, "enter")
        assert "exists already" in screen_text(driver[0])
        assert (tmp_path / "presets" / "mine.toml").read_text() == "kept"
        assert driver[0].state.panel_key == "gpt2-1.5b"


async def test_the_mouse() -> None:
    async with dashboard(climbing()) as driver:
        plan = await press(driver, "2")
        await driver[1].click("#map", offset=(20, 6))
        plan = await planned(driver)
        assert plan.cursor == (2, 4)
        await driver[1].click("PlanBar", offset=(10, 0))
        await driver[1].pause()
        assert isinstance(driver[0].screen, PlanChooser)


async def test_help_and_palette_list_every_key() -> None:
    async with dashboard(climbing(), (120, 120)) as driver:
        await press(driver, "2")
        titles = {command.title for command in driver[0].get_system_commands(driver[0].screen)}
        missing = {binding.tooltip for binding in PLAN_BINDINGS if binding.tooltip not in titles}  # type: ignore[union-attr]  # they are bindings
        assert missing <= {"Next page (narrow terminals)"}
        await driver[1].press("question_mark")
        await driver[1].pause()
        assert isinstance(driver[0].screen, Help)
        text = screen_text(driver[0])
        assert "Map of what fits (focused)" in text
        for words in ("Choose the horizontal axis", "Save the cell's variant", "Six rows down"):
            assert words in text


async def test_presets_can_be_chosen_here() -> None:
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


@pytest.mark.parametrize(("card_name", "told"), [("H200", "limit of what fits"), ("RTX2060", "nothing here fits")])
async def test_a_map_without_a_limit_says_why(card_name: str, told: str) -> None:
    """Where colours are not seen a map of which all fits is else like one of which nothing does."""
    async with dashboard(climbing()) as driver:
        await press(driver, "2")
        await choose(driver, "g", card_name)
        assert told in screen_text(driver[0])
