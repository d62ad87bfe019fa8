from pathlib import Path

import msgspec
import pytest

from vramtui.core.observation.matcher import Candidate
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.jobs import matcher_of_library
from vramtui.presets import PresetLibrary, bundled_folder
from vramtui.presets.library import INDEX

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


def index_of(found: tuple[PresetFile, ...]) -> str:
    told = ((Path(one.path), one.preset.match) for one in found)
    sizes = ((path.relative_to(bundled_folder()), (path.stat().st_size, match)) for path, match in told)
    lines = (f'"{name}": {msgspec.json.encode(one).decode()}' for name, one in sizes)
    return "{\n" + ",\n".join(sorted(lines)) + "\n}\n"


def test_bundled_presets_say_in_the_index_what_they_say_as_a_whole(tmp_path: Path) -> None:
    found = PresetLibrary(tmp_path).all()
    assert (bundled_folder() / INDEX).read_text() == index_of(found), index_of.__doc__
    whole = [Candidate(one.key, one.bundled, one.preset.match) for one in found if one.preset.match is not None]
    assert list(PresetLibrary(tmp_path).candidates()) == whole != []


def test_a_bundled_preset_that_the_index_does_not_know_is_read(tmp_path: Path) -> None:
    (tmp_path / "new.toml").write_text(f'{PRESET}[match]\nall = [["mine"]]\n')
    (tmp_path / INDEX).write_text('{"new.toml": [7, {"all": [["other"]]}]}')
    (new,) = PresetLibrary(tmp_path / "none", tmp_path).candidates()
    assert new.match.all == (("mine",),)


def test_of_a_persons_own_only_the_match_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(f'{PRESET}[match]\nall = [["mine"]]\n')
    (tmp_path / "silent.toml").write_text(PRESET)
    library = PresetLibrary(tmp_path, tmp_path / "none")
    with monkeypatch.context() as patch:
        patch.setattr("vramtui.presets.reader.load_preset", lambda path: pytest.fail(f"{path} is read as a whole"))
        (mine,) = library.candidates()
    assert (mine.key, mine.bundled, mine.match.all) == ("mine", False, (("mine",),))


@pytest.mark.parametrize("written", [
    'match = { all = [["mine"]] }\n' + PRESET,
    'match.all = [["mine"]]\n' + PRESET,
    f'{PRESET}[ match ]\nall = [["mine"]]\n',
    f'{PRESET}[match] # of my jobs\nall = [["mine"]]\n',
    f'{PRESET}[match]\nall = [\n["mine"]\n]\n',
    PRESET.replace("[model]", 'notes = """\n[match]\nall = [["no"]]\n"""\n[model]') + '[match]\nall = [["mine"]]\n',
])  # fmt: skip
def test_another_way_of_writing_it_is_the_same(tmp_path: Path, written: str) -> None:
    (tmp_path / "mine.toml").write_text(written)
    (mine,) = PresetLibrary(tmp_path, tmp_path / "none").candidates()
    assert mine.match.all == (("mine",),)


def test_a_process_has_no_preset_whose_other_tables_are_broken(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[match]\nall = [['train.py']]\n")
    (tmp_path / "unreadable.toml").write_text("[match]\nall = 'train.py'\n")
    library = PresetLibrary(tmp_path, tmp_path / "none")
    assert [one.key for one in library.candidates()] == ["broken"]
    process = Process(pid=1, type="C", used_memory=1, command="python train.py", user="anna", started_at=1.0)
    gpu = Gpu(index=0, uuid="GPU-0", name="T4", memory=Memory(), processes=(process,))
    sample = Sample(source="demo", host=Host(name="here"), taken_at=2.0, gpus=(gpu,))

    def matched() -> list[str]:
        return [found.key for found in matcher_of_library(PresetLibrary(tmp_path)).match(sample, {}).values()]

    assert matched() == []
    (tmp_path / "works.toml").write_text(f'{PRESET}[match]\nall = [["train.py"]]\n')
    assert matched() == ["works"]
    library = PresetLibrary(tmp_path, tmp_path / "none")
    assert library.find("works") is not None
    assert library.find("broken") is None
    assert library.find("nobody") is None


if __name__ == "__main__":
    (bundled_folder() / INDEX).write_text(index_of(PresetLibrary(Path("/none")).all()))
