from pathlib import Path

import pytest

from tests.examples import NOTED
from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.schema.workload import TrainRun
from vramtui.presets import bundled_folder, parse_preset, preset_files, set_values, write_preset_text
from vramtui.presets.toml_text import value_text


def test_comments_and_spacing_stay_and_tables_come_and_go() -> None:
    changed = set_values(NOTED, {"run.batch_size": 8, "name": "Large"})
    assert changed == NOTED.replace("batch_size = 2 #", "batch_size = 8 #").replace('"Small"', '"Large"')
    more = set_values(NOTED, {"run.lora.rank": 4, "run.lora.target_modules": ("q_proj",), "run.batch_size": None})
    run = parse_preset(more, "small.toml").run
    assert isinstance(run, TrainRun)
    assert run.lora is not None
    assert run.batch_size == 1
    less = set_values(more, {"run.lora": None, "run.nothing": None})
    assert getattr(parse_preset(less, "small.toml").run, "lora", 0) is None
    with pytest.raises(UserError, match=r"name\.first cannot be set: name is not a table"):
        set_values(NOTED, {"name.first": 1})
    values: tuple[object, ...] = ('a"\\\n\x7f\x00é', 1.5, True, -3, ["a", [1, {"b c": 2, "d": "e"}]], {})
    for value in values:
        written = value_text(value)
        assert "\n" not in written
        assert toml.loads(f"v = {written}") == {"v": value}


def test_a_file_is_replaced_whole_and_what_is_no_preset_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "small.toml"
    write_preset_text(path, NOTED)
    assert path.read_text() == NOTED
    path.chmod(0o600)
    write_preset_text(path, NOTED + "# more\r\n")
    assert path.read_bytes().endswith(b"# more\r\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["small.toml"]
    path = tmp_path / "small.toml"
    path.write_text(NOTED)
    with pytest.raises(UserError, match=r"small\.toml:13: run\.batch_size is 0"):
        write_preset_text(path, NOTED.replace("= 2 #", "= 0 #"))
    assert path.read_text() == NOTED


def test_a_bundled_preset_is_never_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    theirs = next(bundled_folder().rglob("gpt2-124m.toml"))
    before = theirs.read_bytes()
    link = tmp_path / "link.toml"
    link.symlink_to(theirs)
    for path in (theirs, link):
        with pytest.raises(UserError, match="came with the program; save it as"):
            write_preset_text(path, NOTED)
    assert theirs.read_bytes() == before


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_preset_text(tmp_path / "file" / "small.toml", NOTED)
    folder = tmp_path / "taken.toml"
    folder.mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        write_preset_text(folder, NOTED)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "taken.toml"]


@pytest.mark.parametrize("path", preset_files(bundled_folder()), ids=lambda path: path.stem)
def test_one_changed_value_changes_one_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set_values(text, {}) == text
    before, after = text.split("\n"), set_values(text, {"name": "Another"}).split("\n")
    top = before[: next((at for at, line in enumerate(before) if line.startswith("[")), len(before))]
    assert [new for old, new in zip(before, after, strict=True) if old != new] == [
        old.split("=")[0] + '= "Another"' for old in top if old.startswith("name")
    ]


@pytest.mark.parametrize(("before", "values", "after"), [
    ("a = 1", {"b": 2}, "a = 1\nb = 2\n"),
    ("# top\n\n[t]\n", {"a": 1}, "# top\na = 1\n\n[t]\n"),
    ("[t]\na = 1\n\n# of u\n[u]\n", {"t.b": 2}, "[t]\na = 1\nb = 2\n\n# of u\n[u]\n"),
    ("[t]\n\n[[t.list]]\na = 1\n", {"t.b": 2}, "[t]\nb = 2\n\n[[t.list]]\na = 1\n"),
    ("a = { b = 1 } # c\n", {"a.d": 2}, "a = { b = 1, d = 2} # c\n"),
    ("a = 1\r\n# c\r\n[t]\r\n", {"a": None, "t.x.y": 1}, "# c\r\n[t]\r\n[t.x]\r\ny = 1\r\n"),
])  # fmt: skip
def test_new_keys_go_behind_the_last_of_their_table(before: str, values: dict[str, object], after: str) -> None:
    assert set_values(before, values) == after
