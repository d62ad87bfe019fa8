import json
import os
import re
import shutil
import subprocess
import sys
from os import terminal_size
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.examples import SMALL_MODEL
from tests.tables import rows
from vramtui.cli import presets as editing
from vramtui.presets import load_preset
from vramtui.presets.model_presets import preset_of

PRESET = f"""
name = "Mine [red]x[/]"
{SMALL_MODEL}[run]
kind = "infer"
sequence_length = 128
"""


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("VRAMTUI_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "presets"
    folder.mkdir()
    return folder


def test_the_list_as_json(own_folder: Path) -> None:
    (own_folder / "mine.toml").write_text(PRESET)
    (own_folder / "broken.toml").write_text("name = 1")
    done = invoke("presets", "list", "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    entries = {entry["name"]: entry for entry in document["presets"]}
    assert entries["mine"] == {
        "name": "mine",
        "title": "Mine [red]x[/]",
        "path": str(own_folder / "mine.toml"),
        "bundled": False,
        "model_kind": "transformer",
        "run_kind": "infer",
    }
    assert entries["gpt2-124m"]["bundled"] is True
    assert entries["gpt2-124m"]["run_kind"] == "train"
    assert "broken" not in entries
    assert "broken.toml:1: name is 1, text in quotes is needed" in done.stderr


def test_the_list_for_people(own_folder: Path) -> None:
    (own_folder / "mine.toml").write_text(PRESET)
    done = invoke("presets", "list")
    assert done.exit_code == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("mine ")]
    assert line.strip().split(maxsplit=4) == ["mine", "transformer", "infer", "yours", "Mine [red]x[/]"]


def test_a_name_that_is_not_utf_8_is_listed_and_estimated(own_folder: Path) -> None:
    name = os.fsdecode(b"gr\xf6\xdfe")
    (own_folder / f"{name}.toml").write_text(PRESET)
    # As a program's own output is: strict UTF-8, which a name with lone surrogates is not.
    for arguments in (["presets", "list", "--json"], ["estimate", f"{own_folder}/{name}.toml", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "vramtui", *arguments],
            capture_output=True,
            check=False,
            env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
        )
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
        assert b"gr\xef\xbf\xbd" in done.stdout or b"gr\\ud" in done.stdout


def test_showing_one(own_folder: Path) -> None:
    (own_folder / "mine.toml").write_text(encoding="utf-8", data=PRESET + "#\t\u202e\r\n")
    done = invoke("presets", "show", "mine")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"# {own_folder / 'mine.toml'}"
    assert "hidden_size = 64" in lines
    assert "#\t\ufffd" in lines


def test_showing_one_that_is_not_there() -> None:
    done = invoke("presets", "show", "gpt2-125m")
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "vramtui: no preset is called 'gpt2-125m' (did you mean gpt2-124m, gpt2-355m, gpt2-1.5b or gpt2-774m?)"
    )


@pytest.mark.slow
def test_checking_everything_known(own_folder: Path) -> None:
    assert invoke("presets", "check").exit_code == 0
    (own_folder / "broken.toml").write_text("name = 1")
    done = invoke("presets", "check")
    assert done.exit_code == 2
    assert "broken.toml:1: name is 1, text in quotes is needed" in done.stderr


def test_checking_tells_every_mistake_of_files_folders_and_names(own_folder: Path) -> None:
    good = own_folder / "good.toml"
    good.write_text(PRESET)
    assert invoke("presets", "check", str(good)).stdout == "1 preset is right\n"
    bad = own_folder / "bad.toml"
    bad.write_text(PRESET.replace("hidden_size", "hiden_size").replace("= 2", "= 0"))
    done = invoke("presets", "check", str(own_folder))
    assert done.exit_code == 2
    assert [line.split("bad.toml:")[1] for line in done.stderr.splitlines()] == [
        "5: model.hiden_size is not a key of a transformer model (did you mean hidden_size?)",
        "6: model.num_hidden_layers is 0; it must be at least 1",
        "3: model.hidden_size is missing; a transformer model needs it",
    ]
    bad.write_text(PRESET.replace("num_attention_heads = 4", "num_attention_heads = 7"))
    done = invoke("presets", "check")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "bad.toml:7: model.num_attention_heads" in line
    done = invoke("presets", "check", str(own_folder / "none.toml"))
    assert done.exit_code == 2
    assert "none.toml does not exist" in done.stderr
    assert invoke("presets", "check", str(own_folder)).exit_code == 2


def test_checking_a_models_file_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    answer = invoke("presets", "check", str(tmp_path / "config.json"))
    assert answer.exit_code == 2
    assert "config.json is a model, no preset; `vramtui estimate" in answer.output


def test_the_list_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: terminal_size((80, 24)))  # pytest asks too
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    editing.list_presets()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["NAME", "RUN", "TITLE"]
    (line,) = [line for line in lines if line.startswith("gpt2-124m ")]
    assert line.split() == ["gpt2-124m", "train", "GPT-2", "124M", "·", "training"]


def test_a_new_one_from_a_models_file(own_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    path.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "vocab_size": 100, **sizes}))
    done = invoke("presets", "new", "mine", "--from", str(path))
    assert done.exit_code == 0, done.stderr
    assert Path(done.stdout.strip()) == own_folder / "mine.toml"
    assert load_preset(own_folder / "mine.toml") == preset_of(path)
    assert invoke("presets", "check", str(own_folder)).exit_code == 0


def test_a_new_one_from_another_keeps_its_comments(own_folder: Path) -> None:
    (own_folder / "first.toml").write_text("# mine\n" + PRESET)
    assert invoke("presets", "new", "second", "--from", "first").exit_code == 0
    assert (own_folder / "second.toml").read_text() == "# mine\n" + PRESET


@pytest.mark.parametrize(("name", "source", "said"), rows(__file__, "a_new_one_takes_no_others_place"))
def test_a_new_one_takes_no_others_place(own_folder: Path, name: str, source: str, said: str) -> None:
    (own_folder / "mine.toml").write_text(PRESET)
    done = invoke("presets", "new", name, "--from", source)
    assert done.exit_code == 2
    assert said in done.stderr
    assert [path.name for path in own_folder.parent.rglob("*.toml")] == ["mine.toml"]
    assert (own_folder / "mine.toml").read_text() == PRESET


def _editor(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for $EDITOR: a shell script that is given the file as `$1`."""
    program = folder.parent / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(program))


def test_a_preset_is_edited_and_checked_also_as_a_copy(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = own_folder / "mine.toml"
    mine.write_text(PRESET)
    _editor(own_folder, 'sed -i "s/= 128/= 256/" "$1"', monkeypatch)
    done = invoke("presets", "edit", "mine")
    assert (done.exit_code, done.stdout) == (0, f"{mine} is right\n")
    assert load_preset(mine).run.sequence_length == 256
    _editor(own_folder, "true", monkeypatch)
    done = invoke("presets", "edit", "gpt2-124m")
    assert (done.exit_code, (own_folder / "gpt2-124m.toml").exists()) == (0, False)
    assert "is unchanged" in done.stdout
    _editor(own_folder, 'sed -i "s/^batch_size = .*/batch_size = 3/" "$1"', monkeypatch)
    assert invoke("presets", "edit", "gpt2-124m").exit_code == 0
    assert "batch_size = 3" in (own_folder / "gpt2-124m.toml").read_text()


def test_what_is_wrong_after_editing_is_said_and_kept(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = own_folder / "mine.toml"
    mine.write_text(PRESET)
    _editor(own_folder, 'sed -i "s/= 128/= 0/; s/num_attention_heads = 4/num_attention_heads = 3/" "$1"', monkeypatch)
    done = invoke("presets", "edit", str(mine))
    assert done.exit_code == 2
    assert f"vramtui: {mine}:11: run.sequence_length is 0; it must be at least 1\n" in done.stderr
    assert f"vramtui: {mine} has what you wrote\n" in done.stderr
    assert "sequence_length = 0" in mine.read_text()
    _editor(own_folder, 'sed -i "s/= 0/= 64/" "$1"', monkeypatch)  # a broken one can be edited again
    done = invoke("presets", "edit", "mine")
    assert done.exit_code == 2
    assert "model.num_attention_heads" in done.stderr or "heads" in done.stderr
    _editor(own_folder, 'sed -i "s/heads = 3/heads = 4/" "$1"', monkeypatch)
    assert invoke("presets", "edit", "mine").exit_code == 0


def test_the_editor_opens_again_until_it_is_right(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = own_folder / "mine.toml"
    mine.write_text(PRESET)
    monkeypatch.setattr(editing, "asks", lambda: True)
    _editor(own_folder, 'grep -q "= 0" "$1" && sed -i "s/= 0/= 32/" "$1" || sed -i "s/= 128/= 0/" "$1"', monkeypatch)
    done = invoke("presets", "edit", "mine", input="y\n")
    assert done.exit_code == 0
    assert "run.sequence_length is 0" in done.stderr
    assert "sequence_length = 32" in mine.read_text()
    mine.write_text(PRESET)
    done = invoke("presets", "edit", "mine", input="n\n")
    assert done.exit_code == 2
    assert "has what you wrote" in done.stderr


@pytest.mark.parametrize(
    ("script", "said"), [("exit 3", "editor ended with 3"), ('echo "name = 1" > "$1"; exit 1', "editor ended with 1")]
)
def test_an_editor_that_fails(own_folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    mine = own_folder / "mine.toml"
    mine.write_text(PRESET)
    _editor(own_folder, script, monkeypatch)
    done = invoke("presets", "edit", "mine")
    assert done.exit_code == 2
    assert said in done.stderr
    assert mine.read_text() in {PRESET, "name = 1\n"}


def test_no_editor_and_nothing_to_edit(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", str(own_folder / "none"))
    done = invoke("presets", "edit", "gpt2-124m")
    assert (done.exit_code, list(own_folder.iterdir())) == (2, [])
    assert "cannot be started: no such file or directory" in done.stderr
    assert "no preset is called 'gpt2-124' (did you mean gpt2-124m?)" in invoke("presets", "edit", "gpt2-124").stderr
    assert "does not exist" in invoke("presets", "edit", str(own_folder / "no.toml")).stderr
    assert "is not a preset" in invoke("presets", "edit", str(own_folder / "no.gguf")).stderr
