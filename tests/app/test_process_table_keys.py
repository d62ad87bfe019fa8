"""Keys that come faster than they are drawn: each counts, and the last one is drawn."""

from tests.app import scenes
from tests.app.driver import Clock, dashboard, settle
from vramtui.app.watch.process_table import Rows


async def test_every_press_counts_though_not_every_one_is_drawn() -> None:
    crowd = scenes.gpu(0, *(scenes.process(pid, 1 << 30, f"job {pid}") for pid in range(1000, 1200)))
    clock = Clock()
    async with dashboard([scenes.sample(crowd)], clock=clock) as (app, pilot):
        rows = app.screen.query_one(Rows)
        await pilot.press("home")
        clock.at += 0.01
        for _ in range(4):
            rows.action_move(1)
        await settle(app, pilot)
        assert rows.view is not None
        assert rows.view.chosen is rows.view.rows[4]
        assert rows.view.chosen_at == 4


async def test_the_last_press_is_drawn_by_itself() -> None:
    clock = Clock()
    async with dashboard([scenes.usual()], clock=clock) as (app, pilot):
        rows = app.screen.query_one(Rows)
        await pilot.press("home")
        clock.at += 0.01
        await pilot.press("end")
        while rows.view is not None and rows.view.chosen is not rows.view.rows[-2]:  # the last is nobody's
            await pilot.pause(0.02)
