"""Two pictures of the preset editor."""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.app import scenes
from tests.app.driver import settle
from tests.app.editor_samples import editor, preset_at
from tests.app.svg import SvgExtension
from vramtui.core.base.units import GIB
from vramtui.core.schema.preset import PresetFile


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SvgExtension)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PresetFile:
    """A preset whose path is the same in every run."""
    monkeypatch.chdir(tmp_path)
    return preset_at(Path("presets/tiny.toml"))


async def test_wrong(picture: SnapshotAssertion, found: PresetFile, tmp_path: Path) -> None:
    """A change, and a wrong value: marked in form and text, with the last valid estimate in grey."""
    async with editor(tmp_path, found=found) as (app, pilot, screen):
        screen.open.put("run.batch_size", "8")
        screen.open.put("run.precision", "bf61-mixed")
        screen.form.go_to("run.precision")
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


async def test_offers_of_a_process(picture: SnapshotAssertion, found: PresetFile, tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 2 train.py --per_device_train_batch_size 6 --bf16 --max_seq_length 512"
    sample = scenes.sample(scenes.gpu(0, scenes.process(77, 20 * GIB, line)))
    async with editor(tmp_path, found=found, samples=[sample]) as (app, pilot, _):
        await pilot.press("ctrl+n", "end", "enter")
        await settle(app, pilot)
        assert app.parts.export.picture() == picture
