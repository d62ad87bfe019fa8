"""The preset editor as pictures, at the sizes it is made for and in the states it can be in."""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.app import scenes
from tests.app.driver import settle
from tests.app.editor_samples import TEXT, editor, preset_at
from tests.app.svg import SvgExtension
from vramtui.core.base.units import GIB
from vramtui.core.schema.preset import PresetFile

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)], ids=lambda size: f"{size[0]}x{size[1]}")


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SvgExtension)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PresetFile:
    """A preset whose path is the same in every run."""
    monkeypatch.chdir(tmp_path)
    return preset_at(Path("presets/tiny.toml"))


@SIZES
async def test_editor(picture: SnapshotAssertion, size: tuple[int, int], found: PresetFile, tmp_path: Path) -> None:
    """A larger batch: marked in the form, and with how much each part grows."""
    async with editor(tmp_path, size, found=found) as (app, pilot, screen):
        screen.form.go_to("run.batch_size")
        await pilot.press("8")
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


@SIZES
async def test_wrong(picture: SnapshotAssertion, size: tuple[int, int], found: PresetFile, tmp_path: Path) -> None:
    """A wrong value: marked in form and text, with the nearest right one, and the last good estimate in grey."""
    async with editor(tmp_path, size, found=found) as (app, pilot, screen):
        screen.form.go_to("run.precision")
        screen.open.put("run.precision", "bf61-mixed")
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


@pytest.mark.parametrize("theme", ["vramtui-light", "vramtui-ansi"])
async def test_themes(picture: SnapshotAssertion, theme: str, found: PresetFile, tmp_path: Path) -> None:
    async with editor(tmp_path, found=found) as (app, pilot, screen):
        app.theme = theme
        screen.area.focus()
        screen.area.move_cursor((13, 5))
        screen.open.put("run.sequence_length", "0")
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


@pytest.mark.parametrize("page", [1, 2])
async def test_pages(picture: SnapshotAssertion, page: int, found: PresetFile, tmp_path: Path) -> None:
    async with editor(tmp_path, (80, 24), found=found) as (app, pilot, screen):
        screen.open.put("run.batch_size", "2")
        await pilot.press(*(["f6"] * page))
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


@pytest.mark.parametrize("key", ["ctrl+d", "ctrl+r", "escape", "ctrl+x", "f1", "f5"])
async def test_windows(picture: SnapshotAssertion, key: str, found: PresetFile, tmp_path: Path) -> None:
    async with editor(tmp_path, found=found) as (app, pilot, screen):
        screen.open.put("run.batch_size", "8")
        await pilot.press(key)
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


@pytest.mark.parametrize("keys", [(), ("enter",), ("down", "enter"), ("end", "enter")], ids=str)
async def test_beginnings(picture: SnapshotAssertion, keys: tuple[str, ...], found: PresetFile, tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 2 train.py --per_device_train_batch_size 6 --bf16 --max_seq_length 512"
    sample = scenes.sample(scenes.gpu(0, scenes.process(77, 20 * GIB, line)))
    async with editor(tmp_path, found=found, samples=[sample]) as (app, pilot, _):
        await pilot.press("ctrl+n", *keys)
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


async def test_choices(picture: SnapshotAssertion, found: PresetFile, tmp_path: Path) -> None:
    async with editor(tmp_path, found=found) as (app, pilot, screen):
        screen.form.go_to("model.kind")
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


async def test_changed_on_the_disk(picture: SnapshotAssertion, found: PresetFile, tmp_path: Path) -> None:
    async with editor(tmp_path, found=found) as (app, pilot, screen):
        screen.open.put("name", "Mine")
        (tmp_path / "presets" / "tiny.toml").write_text(TEXT.replace("batch_size = 4", "batch_size = 32"))
        screen.watcher.look()
        await settle(app, pilot)
        assert app.parts.export.picture() == picture
