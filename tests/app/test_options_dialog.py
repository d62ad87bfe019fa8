"""Formats and folder of snapshots are chosen once, in a window."""

import re
from pathlib import Path

from textual.widgets import Input

from tests.app import scenes
from tests.app.driver import dashboard, screen_text, settle
from vramtui.app.watch.windows import SaveOptions
from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import FORMATS, SnapshotSettings


class Choice:
    """Remembers what was chosen, or cannot."""

    def __init__(self, problem: str = "") -> None:
        self.settings = SnapshotSettings(formats=FORMATS)
        self._problem = problem

    def choose(self, settings: SnapshotSettings) -> None:
        self.settings = settings
        if self._problem:
            raise UserError(self._problem)


async def test_formats_and_folder_are_kept() -> None:
    async with dashboard([scenes.usual()], notifications=True) as (app, pilot):
        choice = app.parts.export.writer = Choice()
        await pilot.press("S")
        await settle(app, pilot)
        assert "Markdown, to paste into a ticket" in screen_text(app)
        await pilot.press("space", "down", "space", "tab", *"out", "ctrl+s")
        await settle(app, pilot)
        assert choice.settings == SnapshotSettings(folder="out", formats=("md", "html"))
        assert "Saved: s uses these options" in screen_text(app)


async def test_nothing_ticked_and_a_file_for_a_folder_are_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    async with dashboard([scenes.usual()]) as (app, pilot):
        choice = app.parts.export.writer = Choice()
        await pilot.press("S", *(["space", "down"] * 4), "ctrl+s")
        await settle(app, pilot)
        assert "Select at least one format." in screen_text(app)
        await pilot.press("space", "tab")
        app.screen.query_one(Input).value = str(file)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "That is a file, not a folder." in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert not isinstance(app.screen, SaveOptions)
        assert choice.settings == SnapshotSettings(formats=FORMATS)


async def test_a_choice_that_cannot_be_kept_holds_and_says_so() -> None:
    async with dashboard([scenes.usual()], notifications=True) as (app, pilot):
        choice = app.parts.export.writer = Choice("config.toml cannot be written: No space left on device")
        await pilot.press("S", "space", "ctrl+s")
        await settle(app, pilot)
        assert "json" not in choice.settings.formats
        assert "Applies until you quit." in screen_text(app)


async def test_where_nothing_can_be_saved_there_is_nothing_to_choose() -> None:
    async with dashboard([scenes.usual()], notifications=True) as (app, pilot):
        await pilot.press("S")
        await settle(app, pilot)
        assert "Saving is not available here." in screen_text(app)


async def test_a_picture_asks_no_site_for_anything() -> None:
    async with dashboard([scenes.usual()]) as (app, _):
        svg = app.parts.export.picture()
    assert "@font-face" not in svg
    assert "url(http" not in svg
    assert set(re.findall(r"https?://[^\"'\s<)]+", svg)) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}
