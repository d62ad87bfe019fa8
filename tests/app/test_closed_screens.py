"""A window that was closed is gone."""

from weakref import ref

import pytest
from textual.widgets import Input, OptionList

from tests.app.driver import climbing, dashboard
from vramtui.app.terminal import textual_private


async def test_what_a_closed_window_drew_and_what_is_remembered_of_it_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(textual_private, "PATIENCE", 3600.0)  # here it is done by hand
    async with dashboard(climbing(), size=(160, 50)) as (app, pilot):
        for key in ("p", "question_mark", "i", "exclamation_mark"):
            await pilot.press(key)
            await pilot.pause()
            drawn = [ref(widget) for widget in app.screen.query(OptionList)]
            await pilot.press("escape")
            await pilot.pause()
            assert app.closed_screens.due
            assert any(function.cache_info().currsize for function in textual_private.REMEMBERED)
            app.closed_screens.collect()
            assert not app.closed_screens.due
            assert len(drawn) == (key == "p")
            assert [one() for one in drawn] == [None] * len(drawn)
            assert not any(function.cache_info().currsize for function in textual_private.REMEMBERED)


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
