"""The largest batch is looked for between keys, and shown when it is found."""

import pytest

from tests.app.driver import climbing, dashboard, screen_text
from vramtui.monitor.predictor import MaxBatchSearch

WORDS = "largest batch on an empty card: "


@pytest.mark.slow
async def test_a_long_search_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, held, turns = MaxBatchSearch.go_on, [True], [0]

    def one(self: MaxBatchSearch) -> None:
        if not held[0]:
            turns[0] += 1
            go_on(self, 0.0)  # one estimate a turn, however quick they are

    monkeypatch.setattr(MaxBatchSearch, "go_on", one)
    async with dashboard(climbing(), size=(160, 50)) as (app, pilot):
        assert f"{WORDS}…" in screen_text(app)
        await pilot.press("right_square_bracket")
        assert f"{WORDS}…" in screen_text(app)
        held[0] = False
        while f"{WORDS}…" in screen_text(app):
            await pilot.pause()
        assert screen_text(app).partition(WORDS)[2].split()[0].isdigit()
        assert turns[0] > 3
