"""What the program says stands in the line of the keys, and stays among the alerts and errors."""

import pytest
from textual.notifications import Notifications
from textual.widgets import OptionList
from textual.widgets._toast import Toast

from tests.app import scenes
from tests.app.driver import Driver, climbing, dashboard, screen_text, settle
from vramtui.app.help.dialog import folded
from vramtui.app.ui.view_screen import KeyBar, problem_count
from vramtui.core.observation.readings import Problem


async def said(driver: Driver, words: str, **more: str) -> list[str]:
    """The lines of the screen once something was said."""
    app, pilot = driver
    app.notify(words, markup=False, **more)  # type: ignore[arg-type]  # title, severity
    await settle(app, pilot)
    return screen_text(app).splitlines()


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_a_notice_is_one_line_and_covers_nothing_but_the_keys(size: tuple[int, int]) -> None:
    async with dashboard(climbing(), size, notifications=True) as driver:
        app, _ = driver
        before = screen_text(app).splitlines()
        after = await said(driver, "here/one.json\nhere/two.json", title="Snapshot written")
        assert after[-1].startswith(" Snapshot written: here/one.json · here/two.json")
        assert after[:-1] == before[:-1]
        assert not app.screen.query(Toast)
        long = await said(driver, "a path " * 40, severity="error")
        assert long[-1].rstrip().endswith("…")
        assert len(long[-1]) == size[0]


async def test_the_keys_come_back_and_what_was_said_stays_behind_the_exclamation_mark() -> None:
    async with dashboard(climbing(), notifications=True) as driver:
        app, pilot = driver
        keys = screen_text(app).splitlines()[-1]
        await said(driver, "the first")
        await said(driver, "the second")
        assert "the second" in screen_text(app).splitlines()[-1]
        app.clear_notifications()
        await settle(app, pilot)
        assert screen_text(app).splitlines()[-1] == keys
        await pilot.press("exclamation_mark")
        await settle(app, pilot)
        text = screen_text(app)
        assert text.index("the second") < text.index("the first")


async def test_a_notice_may_run_out_while_it_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual lets go of what has run out whenever it is asked for the number of notices, as `list` does."""
    async with dashboard(climbing(), notifications=True) as driver:
        app, pilot = driver
        monkeypatch.setattr(Notifications, "__len__", lambda self: len(list(iter(self.clear()))))
        await said(driver, "just over")
        await said(driver, "the next")
        await pilot.press("4")
        await settle(app, pilot)
        assert app.screen.query(KeyBar)


async def test_a_screen_that_is_opened_then_says_it_too() -> None:
    async with dashboard(climbing(), notifications=True) as driver:
        app, pilot = driver
        await said(driver, "still there")
        await pilot.press("4")
        await settle(app, pilot)
        assert app.screen.query(KeyBar)
        assert "still there" in screen_text(app).splitlines()[-1]


def test_equal_problems_of_several_gpus_are_one() -> None:
    same = [(f"GPU {index}", "no answer", "look at dmesg") for index in range(8)]
    assert folded([*same, ("source", "slow", "")]) == [
        ("GPU 0, 1, 2, 3, 4, 5, 6, 7", "no answer", "look at dmesg"),
        ("source", "slow", ""),
    ]


async def test_eight_equal_faults_are_counted_as_one() -> None:
    faults = tuple(Problem(where=f"GPU {index}", message="no fan", hint="none") for index in range(8))
    async with dashboard([scenes.sample(scenes.gpu(0), problems=faults)]) as (app, pilot):
        assert problem_count(app.screen.view) == 1  # type: ignore[attr-defined]  # Watch
        assert "1 problem " in screen_text(app)
        await pilot.press("exclamation_mark")
        await settle(app, pilot)
        assert screen_text(app).count("no fan") == 1


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_the_palette_has_one_line_an_action_with_its_key_at_the_right(size: tuple[int, int]) -> None:
    async with dashboard(climbing(), size) as (app, pilot):
        await pilot.press("ctrl+p")
        await settle(app, pilot)
        options = app.screen.query_one(OptionList)
        lines = [str(option.prompt) for option in options.options]
        assert len(lines) == len(set(lines)) > 20
        assert not any("\n" in line for line in lines)
        assert next(line for line in lines if "Filter rows" in line).endswith(" /")
        assert len({len(line) for line in lines}) == 1
        assert len(lines[0]) <= options.scrollable_content_region.width
        await pilot.press(*"filter")
        assert str(options.get_option_at_index(0).prompt).startswith("Filter rows")


async def test_where_the_panel_is_another_page_a_step_says_what_it_comes_to() -> None:
    async with dashboard([scenes.usual()], (80, 24), preset="llama-3.1-8b-lora", notifications=True) as (app, pilot):
        await pilot.press("right_square_bracket")
        await settle(app, pilot)
        assert "What if batch size 5: about " in screen_text(app).splitlines()[-1]
