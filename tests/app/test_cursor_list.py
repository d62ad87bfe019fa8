import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import product
from typing import Any

import pytest

from tests.app import scenes
from tests.app.driver import Driver, dashboard, give, known, press, screen_text, settle
from tests.app.test_history_screen import history, shelf
from vramtui.app.ui.lines import CursorRows
from vramtui.core.base.units import UNKNOWN
from vramtui.core.observation.readings import Process, Sample

Opened = Callable[[tuple[int, int]], AbstractAsyncContextManager[Driver]]


def crowd(count: int, at: float = 0.0, first: int = 1000) -> Sample:
    processes: list[Process] = [scenes.process(first + i, (count - i) << 24, f"job {first + i}") for i in range(count)]
    return scenes.sample(scenes.gpu(0, *processes), at=at)


@asynccontextmanager
async def processes(size: tuple[int, int]) -> AsyncIterator[Driver]:
    async with dashboard([crowd(60)], size) as driver:
        yield driver


@asynccontextmanager
async def runs(size: tuple[int, int]) -> AsyncIterator[Driver]:
    async with history(shelf(), size) as driver:
        yield driver


every_list = pytest.mark.parametrize("opened", [processes, runs])


def rows_of(driver: Driver) -> CursorRows[Any, Any]:
    return driver[0].screen.query_one(CursorRows)


def sees_cursor(rows: CursorRows[Any, Any]) -> bool:
    at = rows.rows_of(rows.view)[1]
    return rows.scroll_offset.y <= at < rows.scroll_offset.y + rows.size.height


@every_list
async def test_keys_move_the_cursor_and_the_wheel_scrolls_until_a_key_is_pressed(opened: Opened) -> None:
    async with opened((80, 24)) as driver:
        rows = rows_of(driver)
        await press(*driver, "end")
        assert rows.rows_of(rows.view)[1] == len(rows.rows) - 1
        assert sees_cursor(rows)
        await press(*driver, "home")
        assert rows.rows_of(rows.view)[1] == 0
        assert sees_cursor(rows)
        await press(*driver, "pagedown")
        assert rows.rows_of(rows.view)[1] == min(len(rows.rows), rows.size.height) - 1
        await press(*driver, "j", "down", "k", "up")
        assert rows.rows_of(rows.view)[1] == min(len(rows.rows), rows.size.height) - 1
        await press(*driver, "pageup")
        assert rows.rows_of(rows.view)[1] == 0
    async with opened((80, 24)) as driver:
        rows = rows_of(driver)
        await press(*driver, "down", "home")
        rows.scroll_to(y=len(rows.rows), animate=False)
        await settle(*driver)
        assert not sees_cursor(rows)
        there = rows.scroll_offset.y
        rows.take(rows.view, rows.palette)  # type: ignore[arg-type]  # it has drawn already, so there is one
        await settle(*driver)
        assert rows.scroll_offset.y == there
        await press(*driver, "home")
        assert sees_cursor(rows)


async def test_every_column_is_painted_and_the_cursor_stays_in_sight_on_its_process() -> None:
    """The last column of the text is the row's, too; a list that scrolled kept there what stood there before."""
    async with processes((80, 24)) as driver:
        rows = rows_of(driver)
        spot = driver[0].painter.spot(rows)
        assert rows.show_vertical_scrollbar
        assert known(spot).size.width == rows.room == rows.outer_size.width - 1
        assert known(spot).place.width == rows.room
        await press(*driver, "down", "down", "down")
        for key in ("o", "<", "o", "o", "escape"):
            await press(*driver, key)
            assert re.search(r"▸\s+1003 ", screen_text(driver[0])), f"after {key}"
    async with dashboard([crowd(60)], (80, 24)) as driver:
        rows = rows_of(driver)
        await press(*driver, "pagedown", "down")
        chosen = rows.rows[rows.rows_of(rows.view)[1]].id
        await give(*driver, crowd(30, 1, first=990))
        assert rows.rows[rows.rows_of(rows.view)[1]].id == chosen
        assert sees_cursor(rows)


@pytest.mark.parametrize(("opened", "title"), [(processes, "PEAK"), (runs, "PREDICT")])
async def test_figures_stand_below_their_headings_with_a_scroll_bar_and_without(opened: Opened, title: str) -> None:
    ends: dict[int, set[int]] = {width: set() for width in (80, 86, 87, 88, 101, 102, 103)}
    async with opened((80, 24)) as driver:
        rows = rows_of(driver)
        for width, height in product(ends, (20, 200)):
            await driver[1].resize_terminal(width, height)
            await settle(*driver)
            assert rows.show_vertical_scrollbar == (height == 20)
            lines = screen_text(driver[0]).splitlines()[rows.region.y - 1 :]
            found = known(re.search(rf" ({title}\w*)", lines[0]))
            ends[width].add(found.end())
            figures = [line[found.start() + 1 : found.end() + 1] for line in lines[1 : 1 + rows.size.height]]
            figures = [text for text in figures if text.strip()]
            assert figures
            assert all(re.fullmatch(r" *[\d.,]*\d ", text) for text in figures if text[-2] not in UNKNOWN)
    assert all(len(found) == 1 for found in ends.values()), ends


async def test_only_rows_that_are_seen_are_made() -> None:
    async with dashboard([crowd(5000)], (120, 35)) as driver:
        rows = rows_of(driver)
        made: list[int] = []
        line_of = rows.line_of

        def counted(row: Any, *rest: Any) -> Any:
            made.append(row.process.pid if row.process else 0)
            return line_of(row, *rest)

        rows.line_of = counted  # type: ignore[assignment]  # counted, and otherwise the same
        await give(*driver, crowd(5000, 1))
        assert len(made) <= rows.size.height
        made.clear()
        await press(*driver, "end")
        assert 0 < len(made) <= 4 * rows.size.height
        made.clear()
        await press(*driver, "up")
        assert len(made) <= 2


@every_list
async def test_a_click_or_a_smaller_terminal_keeps_the_cursor_in_sight(opened: Opened) -> None:
    async with opened((80, 24)) as driver:
        rows = rows_of(driver)
        await driver[1].click(CursorRows, offset=(5, 2))
        await settle(*driver)
        assert rows.rows_of(rows.view)[1] == rows.scroll_offset.y + 2
    async with opened((80, 40)) as driver:
        rows = rows_of(driver)
        await press(*driver, "end")
        await driver[1].resize_terminal(80, 20)
        await settle(*driver)
        assert sees_cursor(rows)
