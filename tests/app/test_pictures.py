"""The screen as pictures, at the sizes it is made for and in the states it can be in."""

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.app import scenes
from tests.app.driver import climbing, dashboard, settle
from tests.app.svg import SvgExtension

BANNER = "No NVIDIA driver on this machine: showing the built-in demo (libnvidia-ml.so.1 was not found)"


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SvgExtension)


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_watch(picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """A job on its way up, its prediction on the bar, in the table and over the graph."""
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
            await pilot.press("v")
            await settle(app, pilot)
        assert app.parts.export.picture() == picture


async def test_trouble(picture: SnapshotAssertion) -> None:
    """Lost, not supported, no permission, hostile names: each says so, and the last GPU is live."""
    async with dashboard([scenes.usual(-30), scenes.troubled()]) as (app, _):
        assert app.parts.export.picture() == picture


async def test_mig_and_unified_memory(picture: SnapshotAssertion) -> None:
    async with dashboard([scenes.divided()]) as (app, _):
        assert app.parts.export.picture() == picture


@pytest.mark.parametrize("key", ["p", "m", "i", "question_mark", "exclamation_mark", "slash"])
async def test_windows(picture: SnapshotAssertion, key: str) -> None:
    async with dashboard([*climbing(), scenes.troubled(1), scenes.usual(2)]) as (app, pilot):
        await pilot.press(key)
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


async def test_steps(picture: SnapshotAssertion) -> None:
    """Two sequences more in the batch: marked as changed, and the bar's mark is beyond the card."""
    async with dashboard(climbing()) as (app, pilot):
        await pilot.press("]", "]")
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


async def test_before_the_first_answer(picture: SnapshotAssertion) -> None:
    async with dashboard() as (app, _):
        assert app.parts.export.picture() == picture
