import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.notifications import Notifications
from textual.widgets import OptionList
from textual.widgets._toast import Toast

from tests.app import scenes
from tests.app.driver import Driver, climbing, dashboard, known, press, screen_text, settle
from vramtui.app.context import ONLY_MONITOR
from vramtui.app.help.controller import commands, keys_shown
from vramtui.app.help.dialog import folded
from vramtui.app.keys import APP_BINDINGS, PREDICTING, SCREENS, is_refused
from vramtui.app.ui.view_screen import GAP, Hint, KeyBar, fitting, problem_count
from vramtui.core.observation.readings import Problem

WIDTHS = (200, 120, 100, 80, 79, 72, 60, 50, 40, 30, 20)


def line_of(driver: Driver) -> str:
    return screen_text(driver[0]).splitlines()[driver[0].screen.query_one(KeyBar).region.y]


@pytest.mark.slow
async def test_hints_are_whole_at_every_width() -> None:
    async with dashboard([*climbing(), scenes.usual(1)], (200, 24)) as driver:
        for place in SCREENS:
            await press(*driver, place.key)
            whole = {hint.strip() for hint in re.split(r"\s{2,}", line_of(driver))}
            # The key that turns a page has a use only where there are pages.
            whole.add("v view")
            for width in (*WIDTHS[1:], WIDTHS[0]):
                await driver[1].resize_terminal(width, 24)
                await settle(*driver)
                shown = [hint for hint in re.split(r"\s{2,}", line_of(driver).strip()) if hint]
                assert set(shown) <= whole, (place, width)
                assert shown[-2:] == ["? help", "q quit"]


async def test_pairs_are_whole_and_a_dashboard_only_looked_at_offers_nothing_it_refuses() -> None:
    async with dashboard([*climbing(), scenes.usual(1)], (80, 24)) as driver:
        await press(*driver, "3")
        line = line_of(driver)
        assert ("{ seq }" in line) == ("{" in line) == ("}" in line)
        assert "[ batch ]" in line
    async with dashboard(climbing()) as driver:
        at = line_of(driver).index("[ batch ]")
        for offset, size in ((8, 5), (0, 4), (3, 3)):
            await driver[1].click(KeyBar, offset=(at + offset, 0))
            await settle(*driver)
            assert known(driver[0].state.view().panel).workload.run.batch_size == size, offset
    async with dashboard([*climbing(), scenes.usual(1)], (120, 35), view_only=True, notifications=True) as (app, pilot):
        for place in SCREENS:
            await press(app, pilot, place.key)
            screen = known(app.screens.current)
            listed = [binding for _, binding in keys_shown(app, screen)]
            shown = [*app.screen.query_one(KeyBar).bindings_shown(), *listed]
            assert not [one.description for one in shown if is_refused(one.action)], place
            assert not {"Edit preset", "Take a snapshot"} & {one.title for one in commands(app, screen)}
            assert {"help", "quit"} <= {one.description for one in shown}
            assert "w save" not in screen_text(app)
        await press(app, pilot, "1", "s")
        assert "view-only" in line_of((app, pilot))


async def test_the_monitor_alone_offers_no_key_of_predictions() -> None:
    async with dashboard([scenes.troubled(1)], (200, 35)) as driver:  # without a preset there is nothing to step
        assert re.split(r"\s{2,}", line_of(driver).strip())[:3] == ["p preset", "m match", "t dry run"]
    async with dashboard([*climbing(), scenes.usual(1)], (200, 35), notifications=True) as driver:
        assert "p preset" in line_of(driver)
        await press(*driver, "M")
        assert line_of(driver).split("  ")[0].strip() == "/ filter"
        for key in ("p", "m"):
            driver[0].announced.clear()
            await press(*driver, key)
            assert [note.message for note in driver[0].announced] == [ONLY_MONITOR]
        await press(*driver, "escape")
        assert not {"p", "e", "m", "["} & {shown.split()[0] for shown in re.split(r"\s{2,}", line_of(driver).strip())}
        listed = {str(binding.id) for _, binding in keys_shown(driver[0], driver[0].screens.current)}
        assert not PREDICTING & listed
        assert {"watch.filter", "watch.monitor"} <= listed
        assert not any(identity.startswith("estimate.") for identity in listed)
        assert "m assigns" not in await press(*driver, "i")


def test_help_and_the_way_out_are_declared_last() -> None:
    shown = [binding for binding in APP_BINDINGS if binding.show]
    assert [binding.description for binding in shown[-2:]] == ["help", "quit"]


hints = st.lists(
    st.builds(
        lambda word, keys: Hint(word, [(key, "") for key in keys]),
        st.text("abc", min_size=1, max_size=9),
        st.lists(st.text("xyz", min_size=1, max_size=5), min_size=1, max_size=3),
    ),
    max_size=12,
)


@given(hints, st.integers(0, 150))
def test_what_fits_is_drawn_in_its_order_and_the_more_important_first(every: list[Hint], width: int) -> None:
    found = fitting(every, width)
    assert found[-2:] == every[-2:]
    used = sum(hint.width for hint in found) + GAP * (len(found) - 1)
    least = sum(hint.width for hint in every[-2:]) + GAP * (len(every[-2:]) - 1)
    assert used <= max(width, least)
    places = [next(at for at, other in enumerate(every) if other is hint) for hint in found]
    assert places == sorted(places)
    room = width - least
    for hint in every[:-2]:
        is_there = any(hint is other for other in found)
        assert is_there == (hint.width + GAP <= room)
        room -= (hint.width + GAP) * is_there


async def said(driver: Driver, words: str, **more: str) -> list[str]:
    app, pilot = driver
    app.notify(words, markup=False, **more)  # type: ignore[arg-type]  # title, severity
    await settle(app, pilot)
    return screen_text(app).splitlines()


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_a_notice_is_one_line_and_covers_nothing_but_the_keys(size: tuple[int, int]) -> None:
    async with dashboard(climbing(), size, notifications=True) as (app, pilot):
        before = screen_text(app).splitlines()
        after = await said((app, pilot), "here/one.json\nhere/two.json", title="Snapshot written")
        assert after[-1].startswith(" Snapshot written: here/one.json · here/two.json")
        assert after[:-1] == before[:-1]
        assert not app.screen.query(Toast)
        long = await said((app, pilot), "a path " * 40, severity="error")
        assert long[-1].rstrip().endswith("…")
        assert len(long[-1]) == size[0]
        path = await said((app, pilot), f"Saved as /srv/anna/{'folder/' * 20}mine.toml; its text stays.")
        assert path[-1].startswith(" Saved as …/mine.toml; its text stays. ")


async def test_a_letter_that_nothing_takes_says_so() -> None:
    async with dashboard(climbing(), notifications=True) as (app, pilot):
        for letter in "ygN":
            assert f" {letter} has no use here" in (await press(app, pilot, letter)).splitlines()[-1]


async def test_the_keys_come_back_and_equal_faults_are_one() -> None:
    async with dashboard(climbing(), notifications=True) as (app, pilot):
        keys = screen_text(app).splitlines()[-1]
        await said((app, pilot), "the first")
        await said((app, pilot), "the second")
        assert "the second" in screen_text(app).splitlines()[-1]
        app.clear_notifications()
        await settle(app, pilot)
        assert screen_text(app).splitlines()[-1] == keys
        text = await press(app, pilot, "exclamation_mark")
        assert text.index("the second") < text.index("the first")
    same = [(f"GPU {index}", "no answer", "look at dmesg") for index in range(8)]
    assert folded([*same, ("source", "slow", "")]) == [
        ("GPU 0, 1, 2, 3, 4, 5, 6, 7", "no answer", "look at dmesg"),
        ("source", "slow", ""),
    ]
    faults = tuple(Problem(where=f"GPU {index}", message="no fan", hint="none") for index in range(8))
    async with dashboard([scenes.sample(scenes.gpu(0), problems=faults)]) as (app, pilot):
        assert problem_count(app.screen.view) == 1  # type: ignore[attr-defined]  # Watch
        assert "1 problem " in screen_text(app)
        await press(app, pilot, "exclamation_mark")
        assert screen_text(app).count("no fan") == 1


async def test_a_notice_is_said_on_every_screen_and_may_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard(climbing(), notifications=True) as (app, pilot):
        await said((app, pilot), "still there")
        await press(app, pilot, "4")
        assert app.screen.query(KeyBar)
        assert "still there" in screen_text(app).splitlines()[-1]
    # Textual lets go of what has run out whenever it is asked for the number of notices, as `list` does.
    async with dashboard(climbing(), notifications=True) as (app, pilot):
        monkeypatch.setattr(Notifications, "__len__", lambda self: len(list(iter(self.clear()))))
        await said((app, pilot), "just over")
        await said((app, pilot), "the next")
        await press(app, pilot, "4")
        assert app.screen.query(KeyBar)


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_the_palette_has_one_line_an_action_with_its_key_at_the_right(size: tuple[int, int]) -> None:
    async with dashboard(climbing(), size) as (app, pilot):
        await press(app, pilot, "ctrl+p")
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
        await press(app, pilot, "right_square_bracket")
        assert "What if batch size 5: 72.0 GiB (v shows the estimate) " in screen_text(app).splitlines()[-1]
