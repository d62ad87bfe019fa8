"""What holds for every whole screen at every size and in every look: nothing cut, nothing lost."""

import re

import pytest
from rich.cells import cell_len

from tests.app import moments
from tests.app.driving import Driver, climbing, dashboard, screen_text, settle
from tests.app.test_plan import planned
from vramtui.app.keys import SCREENS, ScreenEntry
from vramtui.app.plan.screen import PlanScreen
from vramtui.app.themes import THEMES

SIZES = ((80, 24), (120, 35), (200, 50))
every_place = pytest.mark.parametrize("place", SCREENS, ids=lambda place: place.name)
every_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


async def go(driver: Driver, place: ScreenEntry) -> str:
    app, pilot = driver
    await pilot.press(place.key)
    await settle(app, pilot)
    assert app.screens.current is not None
    assert place.name == app.screens.current.PLACE
    if isinstance(app.screens.current, PlanScreen):
        await planned(driver)
    return screen_text(app)


@every_size
@every_place
async def test_frames_are_whole_and_the_last_line_says_how_to_get_help(
    place: ScreenEntry, size: tuple[int, int]
) -> None:
    async with dashboard([*climbing(), moments.usual(1)], size) as driver:
        lines = (await go(driver, place)).splitlines()
        assert len(lines) == size[1]
        assert {cell_len(line) for line in lines} == {size[0]}
        assert all(f"{other.key} {other.title}" in lines[0] for other in SCREENS)
        assert "? help" in lines[-1]
        assert "q quit" in lines[-1]
        text = "\n".join(lines)
        assert text.count("╭") == text.count("╮") == text.count("╰") == text.count("╯")


@every_place
async def test_exactly_one_panel_has_the_keys(place: ScreenEntry) -> None:
    async with dashboard([*climbing(), moments.usual(1)]) as driver:
        await go(driver, place)
        focused = driver[0].screen.focused
        assert focused is not None
        for _ in range(4):
            await driver[1].press("tab")
            assert driver[0].screen.focused is not None


@every_size
@every_place
async def test_ascii(place: ScreenEntry, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_ASCII", "1")
    async with dashboard([*climbing(), moments.troubled()], size) as driver:
        text = await go(driver, place)
        assert text.isascii()
        assert not re.search(r"\?(?! help)", text)


@every_place
async def test_no_color(place: ScreenEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with dashboard([*climbing(), moments.usual(1)]) as driver:
        await go(driver, place)
        strips = driver[0].screen._compositor.render_strips()
        styles = [segment.style for strip in strips for segment in strip if segment.style]
        assert all(colour.is_default for style in styles for colour in (style.color, style.bgcolor) if colour)


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
@every_place
async def test_a_theme_changes_colours_only(place: ScreenEntry, theme: str) -> None:
    async with dashboard([*climbing(), moments.usual(1)]) as driver:
        before = await go(driver, place)
        driver[0].theme = theme
        await settle(*driver)
        assert screen_text(driver[0]) == before


@every_size
@every_place
async def test_before_anything_is_known_it_says_what_to_do(place: ScreenEntry, size: tuple[int, int]) -> None:
    async with dashboard((), size) as driver:
        text = await go(driver, place)
        assert re.search(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}", text.replace("\n", " "))


@every_place
async def test_a_place_survives_every_size(place: ScreenEntry) -> None:
    async with dashboard([*climbing(), moments.usual(1)]) as driver:
        await go(driver, place)
        for size in ((20, 5), (300, 80), (40, 10), (80, 24)):
            await driver[1].resize_terminal(*size)
            await settle(*driver)
            assert len(screen_text(driver[0]).splitlines()) == size[1]


@every_place
async def test_from_every_place_to_every_other(place: ScreenEntry) -> None:
    async with dashboard([*climbing(), moments.usual(1)]) as driver:
        for other in SCREENS:
            await go(driver, place)
            await go(driver, other)
