"""A terminal that changes its size again and again: one layout for each size, and everything sent anew."""

import pytest
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen

from tests.app import scenes
from tests.app.driver import dashboard


class Between(Message):
    """Something that stands between two sizes in a screen's queue, so that they are not taken for one."""


@pytest.mark.parametrize("key", ["", "?", "ctrl+p", "2", "p"])
async def test_two_sizes_on_their_way_end_in_one_layout(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before the last is no longer the terminal's; each layout would send the other size off again."""
    async with dashboard([scenes.usual()]) as (app, pilot):
        if key:
            await pilot.press(key)
        await pilot.pause()
        layouts: list[Size | None] = []
        refresh = Screen._refresh_layout

        def counted(self: Screen[object], size: Size | None = None, scroll: bool = False) -> None:
            layouts.append(size)
            refresh(self, size, scroll)

        monkeypatch.setattr(Screen, "_refresh_layout", counted)
        now, before = app.size, Size(100, 30)
        for _ in range(4):
            app.screen.post_message(events.Resize(before, before))
            app.screen.post_message(Between())
            app.screen.post_message(events.Resize(now, now))
            app.screen.post_message(Between())
        for _ in range(30):
            await pilot.pause()
        assert len(layouts) < 30
        assert before not in layouts
        assert app.screen.size == now


@pytest.mark.usefixtures("painted")
async def test_the_same_size_again_sends_everything_again() -> None:
    """In between it may have been another one, at which the terminal cut what it showed."""
    async with dashboard([scenes.usual()]) as (app, pilot):
        app.painter.frame.size = (1, 1)
        drawn = 0
        whole = app.screen._compositor.render_full_update

        def counted(simplify: bool = False) -> object:
            nonlocal drawn
            drawn += 1
            return whole(simplify)

        app.screen._compositor.render_full_update = counted  # type: ignore[assignment, method-assign]  # counts only
        app.post_message(events.Resize(app.size, app.size))
        await pilot.pause()
        await pilot.pause()
        assert drawn == 1
        assert app.painter.frame.size == (0, 0)
