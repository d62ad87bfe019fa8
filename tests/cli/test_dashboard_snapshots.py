"""The dashboard's snapshots go where and as the settings say, and a choice outlives the program."""

from pathlib import Path

import pytest

from tests.app import scenes
from vramtui.cli.dashboard.services import SnapshotSaver
from vramtui.core.base.errors import UserError
from vramtui.core.observation.history import History
from vramtui.core.observation.snapshot import take_snapshot
from vramtui.core.schema.settings import SnapshotSettings
from vramtui.presets.settings import read_settings


def test_a_choice_is_kept_beside_everything_else(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("# mine\n[dashboard]\ninterval = 2.0  # calm\n\n[snapshot]\nfolder = 'old'\n")
    saver = SnapshotSaver(SnapshotSettings(folder="old"), config)
    saver.choose(SnapshotSettings(folder=str(tmp_path / "new"), formats=("json", "md")))
    kept = read_settings(config)
    assert kept.snapshot == SnapshotSettings(folder=str(tmp_path / "new"), formats=("json", "md"))
    assert kept.dashboard.interval == 2.0
    assert config.read_text().startswith("# mine\n[dashboard]\ninterval = 2.0  # calm\n")
    saver.choose(SnapshotSettings(formats=("csv",)))
    assert read_settings(config).snapshot == SnapshotSettings(formats=("csv",))


def test_it_writes_as_chosen(tmp_path: Path) -> None:
    saver = SnapshotSaver(SnapshotSettings(), tmp_path / "config" / "config.toml")
    saver.choose(SnapshotSettings(folder=str(tmp_path / "out"), formats=("json", "html")))
    snapshot = take_snapshot(scenes.usual(), History(), {}, lambda _preset, _device: None, {})
    paths = [Path(path) for path in saver(snapshot, "<svg/>")]
    assert sorted(path.suffix for path in paths) == [".html", ".json"]
    assert all(path.parent == tmp_path / "out" for path in paths)
    assert "<svg/>" in paths[1].read_text()


def test_a_broken_settings_file_is_left_alone(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[dashbord]\n")
    saver = SnapshotSaver(SnapshotSettings(), config)
    with pytest.raises(UserError, match="dashboard"):
        saver.choose(SnapshotSettings(formats=("json",)))
    assert config.read_text() == "[dashbord]\n"
    assert saver.settings.formats == ("json",)
