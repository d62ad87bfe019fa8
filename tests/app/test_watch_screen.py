"""Which panels Watch shows in a low terminal, page by page."""

import asyncio

from tests.app import scenes
from tests.app.driver import climbing, dashboard, screen_text, settle
from vramtui.estimators.analytic import ANALYTIC

PANELS = ("Processes ·", "Estimate", "Memory ·")


async def test_the_monitors_pages_are_processes_and_their_memory() -> None:
    """The estimate has no page; where few processes leave room the graph stands below them."""
    async with dashboard([*climbing(), scenes.usual(1)], (80, 16)) as driver:

        async def after(key: str) -> list[str]:
            await driver[1].press(key)
            await settle(*driver)
            return [name for name in PANELS if f" {name}" in screen_text(driver[0])]

        assert await after("v") == ["Estimate"]
        assert await after("M") == ["Processes ·"]
        assert await after("v") == ["Memory ·"]
        assert await after("v") == ["Processes ·"]
        await driver[1].resize_terminal(80, 24)
        await settle(*driver)
        assert await after("down") == ["Processes ·", "Memory ·"]
        assert await after("v") == ["Memory ·"]


async def test_w_lists_the_models_that_fit_the_free_memory() -> None:
    """Tab asks for another job, words filter, and Enter estimates the model with the context that fits."""
    async with dashboard([*climbing(), scenes.usual(1)], (120, 35), estimator=ANALYTIC) as (app, pilot):
        await pilot.press("w")

        async def shown(words: str) -> str:
            for _ in range(200):
                await settle(app, pilot)
                if words in screen_text(app):
                    break
                await asyncio.sleep(0.05)
            return screen_text(app)

        text = await shown("Qwen/Qwen3-32B")
        assert "What fits GPU 0 now, 20." in text
        assert "Q4_K_M" in text
        await pilot.press("tab")
        assert "4 BITS" in await shown("Qwen/Qwen3-30B-A3B")
        await pilot.press(*"qwen3-8b")
        assert "Qwen/Qwen3-8B" in await shown("Qwen/Qwen3-8B")
        await pilot.press("enter")
        assert "Estimate · Qwen/Qwen3-8B" in await shown("Estimate · Qwen/Qwen3-8B")
