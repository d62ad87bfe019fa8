"""The line of keys: whole hints only, whatever the width, and always a way to help and out."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app import scenes
from tests.app.driver import Driver, climbing, dashboard, screen_text, settle
from vramtui.app.context import ONLY_MONITOR
from vramtui.app.help.controller import commands, keys_shown
from vramtui.app.keys import APP_BINDINGS, PREDICTING, SCREENS, is_refused
from vramtui.app.ui.view_screen import GAP, Hint, KeyBar, fitting

WIDTHS = (200, 120, 100, 80, 79, 72, 60, 50, 40, 30, 20)


def line_of(driver: Driver) -> str:
    return screen_text(driver[0]).splitlines()[driver[0].screen.query_one(KeyBar).region.y]


@pytest.mark.slow
async def test_hints_are_whole_at_every_width() -> None:
    async with dashboard([*climbing(), scenes.usual(1)], (200, 24)) as driver:
        for place in SCREENS:
            await driver[1].press(place.key)
            await settle(*driver)
            whole = {hint.strip() for hint in re.split(r"\s{2,}", line_of(driver))}
            # The key that turns a page has a use only where there are pages.
            whole.add("v view")
            for width in (*WIDTHS[1:], WIDTHS[0]):
                await driver[1].resize_terminal(width, 24)
                await settle(*driver)
                shown = [hint for hint in re.split(r"\s{2,}", line_of(driver).strip()) if hint]
                assert set(shown) <= whole, (place, width)
                assert shown[-2:] == ["? help", "q quit"]


async def test_the_timeline_at_80_columns_has_no_half_of_a_pair() -> None:
    async with dashboard([*climbing(), scenes.usual(1)], (80, 24)) as driver:
        await driver[1].press("3")
        await settle(*driver)
        line = line_of(driver)
        assert ("{ seq }" in line) == ("{" in line) == ("}" in line)
        assert "[ batch ]" in line


async def test_the_monitor_alone_offers_no_key_of_predictions() -> None:
    async with dashboard([*climbing(), scenes.usual(1)], (200, 35), notifications=True) as driver:
        assert "p preset" in line_of(driver)
        await driver[1].press("M")
        await settle(*driver)
        assert line_of(driver).split("  ")[0].strip() == "/ filter"
        for key in ("p", "m"):
            driver[0].announced.clear()
            await driver[1].press(key)
            await settle(*driver)
            assert [note.message for note in driver[0].announced] == [ONLY_MONITOR]
        await driver[1].press("escape")
        await settle(*driver)
        assert not {"p", "e", "m", "["} & {shown.split()[0] for shown in re.split(r"\s{2,}", line_of(driver).strip())}
        listed = {str(binding.id) for _, binding in keys_shown(driver[0], driver[0].screens.current)}
        assert not PREDICTING & listed
        assert {"watch.filter", "watch.monitor"} <= listed
        assert not any(identity.startswith("estimate.") for identity in listed)
        await driver[1].press("i")
        await settle(*driver)
        assert "m assigns" not in screen_text(driver[0])


async def test_a_dashboard_that_is_only_looked_at_offers_nothing_that_it_refuses() -> None:
    async with dashboard([*climbing(), scenes.usual(1)], (120, 35), view_only=True, notifications=True) as (app, pilot):
        for place in SCREENS:
            await pilot.press(place.key)
            await settle(app, pilot)
            screen = app.screens.current
            assert screen is not None
            listed = [binding for _, binding in keys_shown(app, screen)]
            shown = [*app.screen.query_one(KeyBar).bindings_shown(), *listed]
            assert not [one.description for one in shown if is_refused(one.action)], place
            assert not {"Edit preset", "Take a snapshot"} & {one.title for one in commands(app, screen)}
            assert {"help", "quit"} <= {one.description for one in shown}
            assert "w save" not in screen_text(app)
        await pilot.press("1", "s")
        await settle(app, pilot)
        assert "view-only" in line_of((app, pilot))


async def test_each_side_of_a_pair_can_be_clicked() -> None:
    async with dashboard(climbing()) as driver:
        at = line_of(driver).index("[ batch ]")
        for offset, size in ((8, 5), (0, 4), (3, 3)):
            await driver[1].click(KeyBar, offset=(at + offset, 0))
            await settle(*driver)
            panel = driver[0].state.view().panel
            assert panel is not None
            assert panel.workload.run.batch_size == size, offset  # type: ignore[union-attr]  # it trains


def test_help_and_the_way_out_are_declared_last() -> None:
    shown = [binding for binding in APP_BINDINGS if binding.show]  # type: ignore[union-attr]  # Bindings all of them
    assert [binding.description for binding in shown[-2:]] == ["help", "quit"]  # type: ignore[union-attr]  # as above


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
