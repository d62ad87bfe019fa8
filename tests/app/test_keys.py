from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from tests.app import scenes
from tests.app.driver import Driver, climbing, dashboard, give, known, screen_text, settle
from tests.app.driver import press as text_after
from tests.app.fakes import FixedPresets
from tests.examples import Clock
from vramtui.app.context import ReadFailed, SourceStuck
from vramtui.app.help.dialog import Help, Problems
from vramtui.app.keys import APP_BINDINGS, WATCH_BINDINGS
from vramtui.app.state.view import View
from vramtui.app.ui.lines import SortHeading
from vramtui.app.ui.view_screen import KeyBar
from vramtui.app.watch.estimate_panel import EstimatePanel
from vramtui.app.watch.gpu_panel import GpuPanel
from vramtui.app.watch.preset_picker import PresetChooser
from vramtui.app.watch.process_table import Rows
from vramtui.app.watch.screen import Watch
from vramtui.app.watch.windows import Details, Explain
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.workload import TrainRun
from vramtui.presets import PresetLibrary

SOME_CONFIG = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 100,
"intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}"""


def view_of(driver: Driver) -> View:
    return known(driver[0].screens.first).view


async def press(driver: Driver, *keys: str) -> View:
    await driver[1].press(*keys)
    await settle(*driver)
    return view_of(driver)


def run_of(view: View) -> TrainRun:
    run = known(view.panel).workload.run
    assert isinstance(run, TrainRun)
    return run


def batch(view: View) -> int:
    return run_of(view).batch_size


def length(view: View) -> int | None:
    return run_of(view).sequence_length


def pids(view: View) -> list[int]:
    return [row.process.pid for row in view.rows if row.process]


def preset(view: View) -> str | None:
    return view.panel.preset.key if view.panel else None


def chosen(view: View) -> int | None:
    return view.chosen.process.pid if view.chosen and view.chosen.process else None


async def test_steps_of_the_run_in_the_panel() -> None:
    async with dashboard(climbing()) as driver:
        assert batch(await press(driver, "]", "]")) == 6
        assert batch(await press(driver, "[")) == 5
        assert length(await press(driver, "}")) == 6144
        assert length(await press(driver, "{", "{")) == 3072
        view = await press(driver, "u")
        assert (batch(view), length(view)) == (4, 4096)
        # The panel takes the keys with tab.
        view = await press(driver, "tab", "right", "right")
        assert isinstance(driver[0].focused, EstimatePanel)
        assert batch(view) == 6
        assert batch(await press(driver, "left")) == 5
        assert length(await press(driver, "down", "plus")) == 6144
        assert run_of(await press(driver, "down", "down", "down", "down", "right")).optimizer == "amsgrad"
        assert length(await press(driver, "up", "up", "up", "up", "minus")) == 4096
        # A contradiction is a sentence in the panel.
        for _ in range(3):
            await press(driver, "{")
        assert length(view_of(driver)) == 1536
        assert "max_position_embeddings" in screen_text(driver[0])


async def test_sorting_rows_filter_and_span() -> None:
    async with dashboard(climbing()) as driver:
        assert (await press(driver, ">")).sort == "predicted"
        assert (await press(driver, "<")).sort == "now"
        view = await press(driver, "<", "<", "<")
        assert (view.sort, pids(view)) == ("pid", [977, 4213, 5120])
        assert pids(await press(driver, "o")) == [5120, 4213, 977]
        assert pids(await press(driver, "slash", *"vllm")) == [5120]
        assert pids(await press(driver, "enter")) == [5120]
        assert isinstance(driver[0].focused, Rows)
        assert len(pids(await press(driver, "escape"))) == 3
        assert pids(await press(driver, "slash", *"jup")) == [977]
        assert len(pids(await press(driver, "escape"))) == 3
        assert "No row matches" in await text_after(*driver, "slash", *"nothing at all", "enter", "down", "home")
        await press(driver, "escape", "slash", "q", "s", "p")  # what is typed is not a command
        assert isinstance(driver[0].focused, Input)
        assert driver[0].focused.value == "qsp"
        first = (await press(driver, "escape")).series
        second = (await press(driver, "z")).series
        assert (known(first).end - known(first).start, known(second).end - known(second).start) == (120, 600)
        assert "vramtui" in await text_after(*driver, "ctrl+l")
        driver[0].set_keymap({"watch.pause": "f5"})
        assert (await press(driver, "f5")).paused


async def test_pause_is_shown_and_holds_and_rows_are_held_by_keys() -> None:
    async with dashboard(climbing()) as driver:
        assert chosen(await press(driver, "down")) == 5120
        assert chosen(await press(driver, "k")) == 4213
        for key, at in (("end", -2), ("home", 0), ("pagedown", -2), ("pageup", 0)):
            view = await press(driver, key)
            assert view.chosen is view.rows[at]
            assert view.rows[-1].kind == "unattributed"  # which the cursor passes over
            assert view.is_frozen
        assert not (await press(driver, "escape")).is_frozen
    async with dashboard([scenes.usual(0)]) as driver:
        view = await press(driver, "space")
        await give(*driver, scenes.usual(5, trained=70 * GIB))
        assert "PAUSED" in screen_text(driver[0])
        assert (view_of(driver).sample, max(row.peak or 0 for row in view.rows)) == (scenes.usual(0), 58 * GIB)
        assert (await press(driver, "space")).sample == scenes.usual(5, trained=70 * GIB)


async def test_choosing_a_downloaded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name, config in (("Some-2B", SOME_CONFIG), ("Broken", "{}")):
        folder = tmp_path / f"models--some-org--{name}/snapshots" / ("a" * 40)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(config)
    async with dashboard(climbing()) as driver:
        assert "some-org/Broken" in await text_after(*driver, "p", *"broken")
        await press(driver, "enter")
        assert isinstance(driver[0].screen, PresetChooser)
        assert any("neither architectures" in told.message for told in driver[0].announced)
        await press(driver, *["backspace"] * 6, *"some-2b")
        view = await press(driver, "enter")
        assert view.panel.preset.key == "some-org/Some-2B"
        assert view.panel.estimate is not None


async def test_choosing_a_preset_by_its_name_a_click_or_for_a_process() -> None:
    async with dashboard(climbing(), notifications=True) as driver:
        await press(driver, "p")
        assert isinstance(driver[0].screen, PresetChooser)
        assert "61.0 GiB" in screen_text(driver[0])
        await driver[1].click(OptionList, offset=(3, 3))  # its family's heading is above it
        await settle(*driver)
        assert preset(view_of(driver)) == "qwen2.5-7b-serve"
        assert preset(await press(driver, "p", *"llama", "enter")) == "llama-3.1-8b-lora"
        assert preset(await press(driver, "p", *"qwen", "enter")) == "qwen2.5-7b-serve"
        assert isinstance(driver[0].screen, Watch)
        assert "no preset matches" in await text_after(*driver, "p", *"zzz")
        await press(driver, "enter")
        assert preset(await press(driver, "escape")) == "qwen2.5-7b-serve"
        view = await press(driver, "end", "m", *"qwen", "enter")
        assert {row.preset for row in view.rows if row.process and row.process.pid == 977} == {"qwen2.5-7b-serve"}
        view = await press(driver, "m", "down", "enter")
        assert {row.preset for row in view.rows if row.process and row.process.pid == 977} == {None}
        await press(driver, "home", "m", "down", "enter")
        assert chosen(view_of(driver)) == 4213
        assert view_of(driver).chosen.preset is None
        assert known((await press(driver, "m", "enter")).chosen).preset == "llama-3.1-8b-lora"
    async with dashboard([scenes.sample(scenes.gpu(0, unattributed=9 * GIB))], notifications=True) as driver:
        await press(driver, "m")
        assert isinstance(driver[0].screen, Watch)
        assert "only processes can run a preset" in screen_text(driver[0])


async def test_windows_open_and_close() -> None:
    async with dashboard([scenes.usual(-1), scenes.troubled()], (120, 60)) as driver:
        for key, window, says in (
            ("i", Details, "lifetime peak"),
            ("enter", Details, "throttled by"),
            ("exclamation_mark", Problems, "fell off the bus"),
            ("question_mark", Help, "Sort by the column to the left"),
        ):
            await press(driver, key)
            assert isinstance(driver[0].screen, window)
            assert says in screen_text(driver[0])
            await press(driver, "escape")
            assert isinstance(driver[0].screen, Watch)
    async with dashboard(climbing(), (120, 60), notifications=True) as driver:
        await press(driver, "x")
        assert isinstance(driver[0].screen, Explain)
        text = screen_text(driver[0])
        assert "is estimated" in text
        assert "What moves it" in text
        await press(driver, "escape")
        assert isinstance(driver[0].screen, Watch)
        assert "Process table (focused)" in await text_after(*driver, "question_mark")
        assert "Estimate panel (focused)" in await text_after(*driver, "escape", "tab", "question_mark")


async def test_without_a_preset_or_its_number_a_key_says_what_to_do() -> None:
    async with dashboard([scenes.troubled()], notifications=True, presets=FixedPresets(())) as driver:
        for key in ("x", "]"):
            driver[0].clear_notifications()
            assert "Choose a preset first" in await text_after(*driver, key)
        driver[0].clear_notifications()
        driver[0].state.session.is_matching = False
        await driver[1].press("x")
        await driver[1].pause()
        assert "still being read" in screen_text(driver[0])
    pictures = FixedPresets((PresetLibrary().get("resnet-50-train"),))  # they have no length
    async with dashboard(climbing(), presets=pictures, preset="resnet-50-train", notifications=True) as driver:
        before = batch(view_of(driver))
        await press(driver, "}")
        assert "no sequence length to step" in " ".join(screen_text(driver[0]).split())
        assert batch(await press(driver, "]")) == before + 1


@pytest.mark.parametrize("key", ["escape", "question_mark"])
async def test_the_hint_of_the_first_time_goes(key: str) -> None:
    async with dashboard(climbing()) as driver:
        driver[0].state.hint = "New here? Read this."
        driver[0].draw()
        await settle(*driver)
        assert "New here?" in screen_text(driver[0])
        assert "New here?" not in await text_after(*driver, key, "escape")
        assert isinstance(driver[0].screen, Watch)


async def test_help_names_every_key_once_and_v_turns_pages_of_a_narrow_terminal() -> None:
    bindings = [*WATCH_BINDINGS, *APP_BINDINGS, *Rows.BINDINGS, *EstimatePanel.BINDINGS]
    ids = [binding.id for binding in bindings]
    assert None not in ids
    assert len(set(ids)) == len(ids)
    async with dashboard(climbing(), (99, 140)) as driver:  # one column, in which no text is wrapped
        text = await text_after(*driver, "question_mark")
        for binding in bindings:
            told = binding.tooltip or binding.description
            assert told in text
        await driver[1].resize_terminal(120, 90)
        await press(driver, "escape", "2", "question_mark")  # two panels of the same keys
        (line,) = [line for line in screen_text(driver[0]).splitlines() if "Smaller horizontal value" in line]
        assert line.count("←") == 1
    async with dashboard(climbing(), (80, 24)) as driver:
        assert "COMMAND" in screen_text(driver[0])
        for words in ("activations", "predicted peak", "COMMAND"):
            assert words in await text_after(*driver, "v")


async def test_a_snapshot_says_where_it_is_or_why_not() -> None:
    taken: list[tuple[Snapshot, str]] = []
    problem = ""

    def save(snapshot: Snapshot, svg: str) -> list[str]:
        if problem:
            raise UserError(problem)
        taken.append((snapshot, svg))
        return ["here/vramtui-[1].json"]

    async with dashboard(climbing(), save=save, notifications=True) as driver:
        for problem, words in (("", "here/vramtui-[1].json"), ("the folder is full", "the folder is full")):  # noqa: B007 - `save` reads it
            driver[0].clear_notifications()
            await press(driver, "s")
            for _ in range(50):
                await settle(*driver)
                if driver[0].announced:
                    break
            await settle(*driver)
            assert words in screen_text(driver[0])
    ((snapshot, svg),) = taken
    assert snapshot.holdings[0].preset == "llama-3.1-8b-lora"
    assert svg.startswith("<svg")


async def test_the_palette_runs_every_action_and_q_closes_what_is_open() -> None:
    async with dashboard(climbing()) as driver:
        app = driver[0]
        assert app.screens.first is not None
        titles = {command.title for command in app.get_system_commands(app.screens.first)}
        told = {binding.tooltip for binding in [*WATCH_BINDINGS, *APP_BINDINGS]}
        assert told - titles <= {"Next page (narrow terminals)", "Open the demo (if no GPU can be read)"}
        assert "Theme" in titles
        await press(driver, "ctrl+p")
        await press(driver, *"pause the display")
        assert str(app.screen.query_one(OptionList).get_option_at_index(0).prompt).split()[-1] == "space"
        await press(driver, "enter")
        while not app.state.paused:
            await driver[1].pause(0.01)
    async with dashboard(climbing()) as (app, pilot):
        for key in ("i", "question_mark", "exclamation_mark", "p", "m"):
            await pilot.press(key)
            await settle(app, pilot)
            assert len(app.screen_stack) == 2, key
            # What can be typed into takes a q for the letter: Escape closes that.
            await pilot.press("escape" if isinstance(app.focused, Input) else "q")
            await settle(app, pilot)
            assert len(app.screen_stack) == 1, key
        await pilot.press("q")
    assert app.return_code == 0
    async with dashboard(climbing()) as (app, pilot):
        await pilot.press("ctrl+c")
    assert app.return_code == 130


async def test_mouse() -> None:
    async with dashboard(climbing()) as driver:
        app, pilot = driver
        panel = app.screen.query_one(EstimatePanel)
        assert "›" not in panel.shown[0].text  # the fields are shown with the focus
        panel.focus()
        await settle(*driver)
        for sign, size in (("›", 5), ("‹", 4)):
            await pilot.click(EstimatePanel, offset=(1 + panel.shown[0].text.index(sign), 1))
            await settle(*driver)
            assert batch(view_of(driver)) == size
        await pilot.click(Rows, offset=(20, 1))
        await settle(*driver)
        assert chosen(view_of(driver)) == 5120
        await pilot.click(SortHeading, offset=(3, 0))
        await settle(*driver)
        assert view_of(driver).sort == "pid"
        await pilot.click(GpuPanel, offset=(10, 2))
        await settle(*driver)
        assert view_of(driver).chosen.gpu.index == 1
        line = screen_text(app).splitlines()[app.query_one(KeyBar).region.y]
        await pilot.click(KeyBar, offset=(line.index("pause"), 0))
        await settle(*driver)
        assert view_of(driver).paused


async def test_a_source_that_is_stuck_or_fails_leaves_everything_else_alive() -> None:
    clock = Clock(scenes.START)
    async with dashboard([scenes.usual()], clock=clock, preset="qwen2.5-7b-serve") as driver:
        app, pilot = driver
        assert preset(view_of(driver)) == "qwen2.5-7b-serve"
        assert batch(await press(driver, "p", *"llama", "enter")) == 4
        clock.now += 12
        app.post_message(SourceStuck())
        await settle(*driver)
        assert "no answer from the driver for 12 s" in screen_text(app)
        assert batch(await press(driver, "]")) == 5
        await give(app, pilot, scenes.usual(13))
        assert "no answer" not in screen_text(app)
        app.post_message(ReadFailed("the driver was unloaded.", "Reload the module."))
        await settle(*driver)
        assert "the driver was unloaded. Reload the module." in screen_text(app)
        await give(*driver, scenes.usual(14))
        assert "unloaded" not in screen_text(app)


async def test_a_hostile_name_is_only_text_everywhere() -> None:
    async with dashboard([scenes.troubled()], (200, 50)) as driver:
        for keys in ((), ("slash", *"pid:301", "enter", "i")):
            text = await text_after(*driver, *keys)
            assert "[red]x[/] ␛[2J␛]0;pwn␇" in text
            assert "\x1b" not in text
            assert "\x07" not in text
        assert "\x1b" not in driver[0].parts.export.picture()


@pytest.mark.parametrize("sample", [scenes.sample(), scenes.sample(scenes.gpu(0))])
async def test_empty_hosts_say_what_to_do(sample: object) -> None:
    async with dashboard([sample], presets=FixedPresets(())) as driver:  # type: ignore[list-item]  # a sample
        text = screen_text(driver[0])
        assert "Press p to choose a preset" in text
        assert ("No GPUs are listed" in text) == (not sample.gpus)  # type: ignore[attr-defined]  # a sample


async def test_sixteen_gpus_and_thousands_of_rows() -> None:
    """GPUs stand in two columns, in one with the estimate beside them; the table keeps eight rows and draws only those
    that are seen.
    """
    processes = [scenes.process(1000 + at, 1 << 30, "python train.py llama") for at in range(64)]
    sample = scenes.sample(*(scenes.gpu(at, *processes[4 * at : 4 * at + 4]) for at in range(16)))
    async with dashboard([sample]) as (app, pilot):
        lines = [line for line in screen_text(app).splitlines() if " GiB" in line and line.count("▐") == 2]
        assert len(lines) == 8
        await pilot.click(GpuPanel, offset=(100, 3))
        await settle(app, pilot)
        assert known(app.state.view().chosen).gpu.index == 10
        await press((app, pilot), "p", "enter")
        rows = app.screen.query_one(Rows)
        assert rows.size.height >= 8
        assert "more: scroll" in screen_text(app)
        crowd = scenes.gpu(0, *(scenes.process(pid, 1 << 20, f"job {pid}") for pid in range(1000, 4000)))
        await give(app, pilot, scenes.sample(crowd, at=1))
        assert len((await press((app, pilot), "end")).rows) == 3000
        assert 0 < len(rows.drawn) <= rows.size.height
        assert rows.scroll_offset.y == 3000 - rows.size.height
        assert chosen(await press((app, pilot), "home")) == 1000
        assert rows.scroll_offset.y == 0


@pytest.mark.parametrize(
    ("key", "sort", "group"), [("f6", "predicted", "none"), ("T", "now", "tree"), ("f5", "now", "tree")]
)
async def test_keys_of_other_monitors(key: str, sort: str, group: str) -> None:
    async with dashboard(climbing()) as driver:
        view = await press(driver, key)
        assert (view.sort, view.group) == (sort, group)
        await driver[1].press("colon")
        assert type(driver[0].screen).__name__ == "CommandPalette" or driver[0].screen.is_modal
