import asyncio

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.app import scenes
from tests.app.driver import climbing, dashboard, press, screen_text, settle
from vramtui.app.context import ReadFailed
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.app.watch.preset_picker import PresetChooser
from vramtui.estimators.analytic import ANALYTIC

BANNER = "No NVIDIA driver on this machine: showing the built-in demo (libnvidia-ml.so.1 was not found)"


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_watch(picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    async with dashboard(climbing(), size, banner=BANNER) as (app, _):
        assert app.parts.export.picture() == picture


@pytest.mark.parametrize("theme", ["vramtui-light", "vramtui-ansi", "nord"])
async def test_themes(picture: SnapshotAssertion, theme: str) -> None:
    async with dashboard(climbing()) as (app, pilot):
        app.theme = theme
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


@pytest.mark.parametrize("pages", [1, 2])
async def test_pages_of_a_small_terminal(picture: SnapshotAssertion, pages: int) -> None:
    async with dashboard(climbing(), (80, 24)) as (app, pilot):
        for _ in range(pages):
            await press(app, pilot, "v")
        assert app.parts.export.picture() == picture


async def test_trouble(picture: SnapshotAssertion) -> None:
    async with dashboard([scenes.usual(-30), scenes.troubled()]) as (app, _):
        assert app.parts.export.picture() == picture


@pytest.mark.parametrize("key", ["p", "m", "i", "question_mark", "exclamation_mark", "slash", "right_square_bracket"])
async def test_after_a_key(picture: SnapshotAssertion, key: str) -> None:
    async with dashboard([*climbing(), scenes.troubled(1), scenes.usual(2)]) as (app, pilot):
        await pilot.press(key)
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


@pytest.mark.parametrize("name", ["one", "four", "eight", "mig", "mps", "unified", "simulated"])
async def test_first_screen(picture: SnapshotAssertion, name: str) -> None:
    async with dashboard([scenes.first_screen(name)]) as (app, _):
        assert app.parts.export.picture() == picture


async def test_the_chosen_gpu_comes_into_view() -> None:
    async with dashboard([scenes.first_screen("eight")], (100, 30)) as (app, pilot):
        assert "▸ 7 A100" not in screen_text(app)
        assert "▸ 7 A100" in await press(app, pilot, *["down"] * 7)
        await pilot.resize_terminal(80, 24)
        text = await press(app, pilot, "v")
        assert all(words in text for words in ("▸ 7 A100", "activations", "── process", "peak: "))
        assert "from the command line" not in text
        assert "from the command line: --batch 4" in await press(app, pilot, "x")


async def test_no_driver(picture: SnapshotAssertion) -> None:
    async with dashboard() as (app, pilot):
        assert "asking the driver …" in screen_text(app)
        app.post_message(ReadFailed("The NVIDIA driver is not loaded.", "Load it with `sudo modprobe nvidia`."))
        await settle(app, pilot)
        assert app.parts.export.picture() == picture
        while "llama-3.1-8b-lora" not in await press(app, pilot, "escape", "p"):
            assert "Choose a preset" in screen_text(app)  # they are read without a GPU, too


@pytest.mark.parametrize("key", ["2", "3", "4", "p"])
async def test_a_closed_screen_draws_nothing(key: str) -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        await press(app, pilot, key)
        closed = app.screen
        await pilot.press("escape" if key == "p" else "1")
        while closed.is_attached:
            await pilot.pause(0.02)
        if isinstance(closed, PresetChooser):
            closed.fill_totals()
        else:
            assert isinstance(closed, ViewScreen)
            closed.watch_view(closed.view)


PANELS = ("Processes ·", "Estimate", "Memory ·")


async def test_the_monitors_pages_are_processes_and_their_memory() -> None:
    async with dashboard([*climbing(), scenes.usual(1)], (80, 16)) as driver:

        async def after(key: str) -> list[str]:
            await press(*driver, key)
            return [name for name in PANELS if f" {name}" in screen_text(driver[0])]

        assert [await after(key) for key in "vMv"] == [["Estimate"], ["Processes ·"], ["Memory ·"]]
        for key, place in (("down", 1), ("v", 1), ("down", 2), ("v", 2), ("up", 1), ("v", 1)):  # on both pages
            await press(*driver, key)
            assert driver[0].state.view().chosen_at == place
        await driver[1].resize_terminal(80, 24)
        await settle(*driver)
        assert await after("down") == ["Processes ·", "Memory ·"]
        assert await after("v") == ["Memory ·"]


async def test_w_lists_the_models_that_fit_the_free_memory() -> None:
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
