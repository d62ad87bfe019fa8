"""A window that was closed is gone."""

import gc
from weakref import ref

import pytest
from textual.widgets import Input, OptionList

from tests.app.driver import climbing, dashboard
from vramtui.app.terminal import closed_screens as tidying


async def test_what_a_closed_window_drew_is_let_go() -> None:
    async with dashboard(climbing(), size=(160, 50)) as (app, pilot):
        await pilot.press("p")
        await pilot.pause()
        drawn = ref(app.screen.query_one(OptionList))
        assert drawn() is not None
        await pilot.press("escape")
        await pilot.pause()
        app.closed_screens.collect()
        assert drawn() is None, gc.get_referrers(drawn())


async def test_every_closed_window_is_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "PATIENCE", 3600.0)  # here it is done by hand
    async with dashboard(climbing()) as (app, pilot):
        for key in ("p", "question_mark", "i", "exclamation_mark"):
            await pilot.press(key)
            await pilot.pause()
            await pilot.press("escape")
            await pilot.pause()
            assert app.closed_screens.due
            app.closed_screens.collect()
            assert not app.closed_screens.due


async def test_what_is_remembered_of_looks_and_places_is_let_go_with_it() -> None:
    async with dashboard(climbing(), size=(160, 50)) as (app, pilot):
        for key in ("p", "escape"):
            await pilot.press(key)
            await pilot.pause()
        assert any(function.cache_info().currsize for function in tidying.REMEMBERED)
        app.closed_screens.collect()
        assert not any(function.cache_info().currsize for function in tidying.REMEMBERED)


async def test_a_filter_that_was_closed_is_gone_when_there_was_another() -> None:
    async with dashboard(climbing(), size=(160, 50)) as (app, pilot):
        typed = []
        for _ in range(3):
            await pilot.press("slash")
            await pilot.pause()
            typed.append(ref(app.screen.query_one(Input)))
            await pilot.press("escape", "escape")
            await pilot.pause()
        assert not app.screen.query(Input)
        app.closed_screens.collect()
        # Textual remembers the latest children of a screen in one more place.
        assert [one() for one in typed[:2]] == [None, None]
