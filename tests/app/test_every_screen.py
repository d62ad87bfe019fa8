import re

import pytest
from rich.cells import cell_len

from tests.app import scenes
from tests.app.driver import Driver, climbing, dashboard, press, screen_text, settle, shown
from tests.app.test_plan import planned
from vramtui.app.keys import SCREENS, ScreenEntry
from vramtui.app.plan.screen import PlanScreen
from vramtui.app.themes import THEMES

SIZES = ((80, 24), (120, 35), (200, 50))
every_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


async def go(driver: Driver, place: ScreenEntry) -> str:
    app, pilot = driver
    await press(app, pilot, place.key)
    assert place.name == app.screens.current.PLACE
    if isinstance(app.screens.current, PlanScreen):
        await planned(driver)
    return screen_text(app)


@every_size
async def test_frames_are_whole_and_the_last_line_says_how_to_get_help(size: tuple[int, int]) -> None:
    async with dashboard([*climbing(), scenes.usual(1)], size) as driver:
        for place in SCREENS:
            lines = (await go(driver, place)).splitlines()
            assert len(lines) == size[1], place
            assert {cell_len(line) for line in lines} == {size[0]}, place
            assert all(f"{other.key} {other.title}" in lines[0] for other in SCREENS), place
            assert "? help" in lines[-1], place
            assert "q quit" in lines[-1], place
            text = "\n".join(lines)
            assert text.count("╭") == text.count("╮") == text.count("╰") == text.count("╯"), place


async def test_exactly_one_panel_has_the_keys_and_a_theme_changes_colours_only() -> None:
    async with dashboard([*climbing(), scenes.usual(1)]) as driver:
        for place in SCREENS:
            await go(driver, place)
            assert driver[0].screen.focused is not None, place
            for _ in range(4):
                await driver[1].press("tab")
                assert driver[0].screen.focused is not None, place
        for place in SCREENS:
            before = (await go(driver, place)).replace("█", " ")  # which in true colours a filled space stands for
            for theme in THEMES:
                driver[0].theme = theme.name
                await settle(*driver)
                assert screen_text(driver[0]).replace("█", " ") == before, (place, theme.name)


@every_size
async def test_ascii(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_ASCII", "1")
    async with dashboard([*climbing(), scenes.troubled()], size) as driver:
        for place in SCREENS:
            text = await go(driver, place)
            assert text.isascii(), place
            assert not re.search(r"\?(?! help)", text), place


async def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with dashboard([*climbing(), scenes.usual(1)]) as driver:
        for place in SCREENS:
            await go(driver, place)
            styles = [segment.style for strip in shown(driver[0]) for segment in strip if segment.style]
            colours = [colour for style in styles for colour in (style.color, style.bgcolor) if colour]
            assert all(colour.is_default for colour in colours), place


@every_size
async def test_before_anything_is_known_it_says_what_to_do(size: tuple[int, int]) -> None:
    async with dashboard((), size) as driver:
        for place in SCREENS:
            text = await go(driver, place)
            assert re.search(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}", text.replace("\n", " ")), place


@pytest.mark.usefixtures("painted")
async def test_a_place_survives_every_size_and_every_other_place() -> None:
    async with dashboard([*climbing(), scenes.usual(1)]) as driver:
        for place in SCREENS:
            await go(driver, place)
            for size in ((20, 5), (300, 80), (40, 10), (80, 24)):
                await driver[1].resize_terminal(*size)
                await settle(*driver)
                assert len(screen_text(driver[0]).splitlines()) == size[1], place
        for number, place in enumerate(SCREENS):
            before = await go(driver, place)
            for other in SCREENS[number + 1 :]:
                assert await go(driver, other) != before, (place, other)
                assert await go(driver, place) == before, (place, other)
