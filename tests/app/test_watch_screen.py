"""Which panels Watch shows in a low terminal, page by page."""

from tests.app import scenes
from tests.app.driver import climbing, dashboard, screen_text, settle

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
