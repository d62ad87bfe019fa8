"""What is read of presets to know their processes: the same as all of them would say."""

from pathlib import Path

from vramtui.core.observation.matcher import Candidate
from vramtui.presets import PresetLibrary

PRESET = """name = "Mine"
[model]
kind = "transformer"
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 2
vocab_size = 100
[run]
kind = "train"
"""


def test_bundled_presets_say_in_their_match_what_they_say_as_a_whole(tmp_path: Path) -> None:
    library = PresetLibrary(tmp_path)
    whole = [
        Candidate(found.key, found.bundled, found.preset.match)
        for found in library.all()
        if found.preset.match is not None
    ]
    assert len(whole) > 50
    assert list(PresetLibrary(tmp_path).candidates()) == whole


def test_a_persons_own_are_read_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f'{PRESET}[match]\nall = [["mine"]]\n')
    (tmp_path / "broken.toml").write_text("[match]\nall = [['broken']]\n")
    (tmp_path / "silent.toml").write_text(PRESET)
    library = PresetLibrary(tmp_path, tmp_path / "none")
    assert [(one.key, one.bundled, one.match.all) for one in library.candidates()] == [("mine", False, (("mine",),))]
    assert library.find("mine") is not None
    assert library.find("broken") is None
    assert library.find("nobody") is None
