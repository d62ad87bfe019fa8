"""The windows over the screens: all of their text can be reached."""

import pytest
from textual.containers import VerticalScroll

from tests.app.driver import climbing, dashboard, settle


@pytest.mark.parametrize("size", [(80, 24), (60, 16), (200, 50)])
@pytest.mark.parametrize("key", ["i", "question_mark", "x"])
async def test_the_end_of_a_long_text_is_a_key_away(key: str, size: tuple[int, int]) -> None:
    async with dashboard(climbing(), size=size) as (app, pilot):
        await pilot.press(key)
        await settle(app, pilot)
        scroll = app.screen.query_one(VerticalScroll)
        assert app.screen.query_one("#window").content_region.contains_region(scroll.region)
        await pilot.press("end")
        await pilot.wait_for_animation()
        await settle(app, pilot)
        assert scroll.scroll_y == scroll.max_scroll_y == max(0, scroll.virtual_size.height - scroll.size.height)
