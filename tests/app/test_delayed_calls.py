"""Short delays end although the program got no processor meanwhile: Textual's own timers may never end then."""

import asyncio
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.app import App

from tests.app.driver import climbing
from tests.app.replays import Tape, playing, replay_of
from vramtui.app.context import LEAST_BETWEEN_DRAWINGS, RedrawThrottle
from vramtui.app.terminal.textual_private import call_after

PACKAGE = Path(__file__).parents[2] / "vramtui"
LATE = 0.02  # seconds that pass between any two looks at the clock


@pytest.fixture
def busy_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a timer of Textual's looks at the clock, it is later than it expects."""
    looks = count()
    monkeypatch.setattr("textual.timer._time", SimpleNamespace(get_time=lambda: time.monotonic() + LATE * next(looks)))


@pytest.mark.usefixtures("busy_host")
async def test_a_delayed_call_comes_where_a_timer_of_textuals_does_not() -> None:
    app: App[None] = App()
    called: list[str] = []
    async with app.run_test():
        app.set_timer(0.001, lambda: called.append("timer"))
        call_after(app, 0.001, lambda: called.append("call"))
        await asyncio.sleep(0.2)
    assert called == ["call"]


@pytest.mark.usefixtures("busy_host")
async def test_a_long_way_through_a_recording_is_gone_on_a_busy_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.monitor.replay.SLICE", 0.0)
    async with playing(Tape(climbing(30, to=60))) as (player, pilot, _):
        assert replay_of(player).seek("100%") == ""
        over = time.monotonic() + 20
        while not replay_of(player).feed.is_there and time.monotonic() < over:
            await pilot.pause(0.002)
        assert replay_of(player).feed.is_there


@pytest.mark.usefixtures("busy_host")
async def test_what_comes_often_is_drawn_on_a_busy_host() -> None:
    app: App[None] = App()
    drawn: list[float] = []
    async with app.run_test():
        redraw = RedrawThrottle(app, lambda: drawn.append(time.monotonic()), time.monotonic)
        redraw.is_drawn()
        redraw.soon()
        await asyncio.sleep(LEAST_BETWEEN_DRAWINGS + 0.2)
    assert len(drawn) == 1


def test_nothing_else_waits_for_a_timer_that_may_not_come() -> None:
    found = [path for path in PACKAGE.rglob("*.py") if "set_timer(" in path.read_text(encoding="utf-8")]
    assert found == []
