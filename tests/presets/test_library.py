from pathlib import Path

import pytest

from tests.examples import SMALL
from vramtui.core.base.errors import UserError
from vramtui.presets import PresetLibrary, config_dir
from vramtui.presets.named_presets import preset_named


def put(folder: Path, key: str, name: str = "mine") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}.toml"
    path.write_text(SMALL.replace('"Small"', f'"{name}"'))
    return path


@pytest.fixture
def library(tmp_path: Path) -> PresetLibrary:
    put(tmp_path / "bundled" / "llama", "llama-8b", "theirs")
    put(tmp_path / "bundled", "gpt2", "theirs")
    put(tmp_path / "mine", "gpt2")
    put(tmp_path / "mine" / "work", "resnet")
    put(tmp_path / "mine" / ".git", "hidden")
    return PresetLibrary(tmp_path / "mine", tmp_path / "bundled")


def test_the_users_own_come_first_and_an_unknown_name_leads_to_the_nearest(library: PresetLibrary) -> None:
    assert [(found.key, found.bundled) for found in library.all()] == [
        ("gpt2", False),
        ("llama-8b", True),
        ("resnet", False),
    ]
    assert library.keys() == ("gpt2", "llama-8b", "resnet")
    assert preset_named("gpt2", library).preset.name == "mine"
    assert preset_named("llama-8b", library).path.endswith("bundled/llama/llama-8b.toml")
    assert library.problems == ()
    with pytest.raises(UserError, match=r"no preset is called 'lama-8b' \(did you mean llama-8b\?\)"):
        preset_named("lama-8b", library)
    with pytest.raises(UserError, match=r"lama-8b\.toml does not exist \(did you mean llama-8b\?\)"):
        preset_named("presets/lama-8b.toml", library)


def test_a_path_wins_over_every_name(library: PresetLibrary, tmp_path: Path) -> None:
    path = put(tmp_path, "gpt2", "here")
    found = preset_named(str(path), library)
    assert (found.key, found.preset.name, found.bundled) == ("gpt2", "here", False)
    assert preset_named(str(tmp_path / "bundled" / "gpt2.toml"), library).bundled


def test_a_broken_file_or_one_of_the_same_name_hides_no_other(library: PresetLibrary, tmp_path: Path) -> None:
    (tmp_path / "mine" / "broken.toml").write_text("name = 1")
    (tmp_path / "mine" / "worse.toml").write_bytes(b"\xff")
    put(tmp_path / "mine" / "zoo", "gpt2", "second")
    assert [found.key for found in library.all()] == ["gpt2", "llama-8b", "resnet"]
    first, second, twice = library.problems
    assert "has the same name" in twice
    assert "broken.toml:1: name is 1, text in quotes is needed" in first
    assert "worse.toml:1: not UTF-8 text" in second
    with pytest.raises(UserError, match="text in quotes is needed"):
        preset_named("broken", library)
    assert preset_named("gpt2", library).preset.name == "mine"


def test_what_changes_on_disk_is_noticed(library: PresetLibrary, tmp_path: Path) -> None:
    assert library.refresh() is False
    kept = preset_named("llama-8b", library)
    assert preset_named("gpt2", library).preset.name == "mine"
    assert library.refresh() is False
    (tmp_path / "mine" / "gpt2.toml").write_text("name = 1")
    assert library.refresh() is True
    assert len(library.problems) == 1
    (tmp_path / "mine" / "gpt2.toml").unlink()
    put(tmp_path / "mine", "new")
    assert library.refresh() is True
    assert not library.problems
    assert preset_named("gpt2", library).preset.name == "theirs"
    assert preset_named("new", library).preset.name == "mine"
    assert preset_named("llama-8b", library) is kept
    assert library.refresh() is False


def test_the_configuration_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = PresetLibrary(tmp_path / "none", tmp_path / "neither")
    assert library.all() == ()
    assert library.problems == ()
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    assert config_dir() == tmp_path
    put(tmp_path / "presets", "own")
    assert "own" in PresetLibrary().keys()  # noqa: SIM118 - a method of ours, not a mapping's
    monkeypatch.delenv("VRAMTUI_CONFIG_DIR")
    assert config_dir().name == "vramtui"
