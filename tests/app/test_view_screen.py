"""Screens that are told to draw at a later moment, and are closed by then."""

import pytest

from tests.app import scenes
from tests.app.driver import dashboard, settle
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.app.watch.preset_picker import PresetChooser


@pytest.mark.parametrize("key", ["2", "3", "4"])
async def test_a_closed_place_draws_nothing(key: str) -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        await pilot.press(key)
        await settle(app, pilot)
        place = app.screen
        assert isinstance(place, ViewScreen)
        await pilot.press("1")
        while place.is_attached:
            await pilot.pause(0.02)
        place.watch_view(place.view)


async def test_a_closed_list_of_presets_fills_in_nothing() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        await pilot.press("p")
        await settle(app, pilot)
        chooser = app.screen
        assert isinstance(chooser, PresetChooser)
        await pilot.press("escape")
        while chooser.is_attached:
            await pilot.pause(0.02)
        chooser.fill_totals()
