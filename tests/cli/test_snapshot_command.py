import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vramtui.cli.main import program

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def _no_settings_of_a_persons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))


def test_all_formats_are_written_and_nothing_is_overwritten(tmp_path: Path) -> None:
    first = run(program(), ["snapshot", "--demo", "--folder", str(tmp_path)])
    second = run(program(), ["snapshot", "--demo", "--folder", str(tmp_path)])
    assert (first.exit_code, second.exit_code) == (0, 0)
    paths = [Path(line) for line in (first.stdout + second.stdout).splitlines()]
    assert len(set(paths)) == 10
    assert sorted(path.suffix for path in paths) == sorted([".json", ".csv", ".md", ".svg", ".html"] * 2)
    assert all(path.stat().st_size for path in paths)


def test_the_snapshot_says_which_versions_stand_behind_it(tmp_path: Path) -> None:
    result = run(program(), ["snapshot", "--demo", "-f", "json", "--folder", str(tmp_path)])
    document = json.loads(Path(result.stdout.strip()).read_text())
    assert {"vramtui", "python", "driver", "cuda"} <= set(document["versions"])


def test_the_picture_shows_the_dashboard(tmp_path: Path) -> None:
    result = run(program(), ["snapshot", "--demo", "-f", "svg", "--folder", str(tmp_path)])
    svg = Path(result.stdout.strip()).read_text()
    assert "llama-3.1-8b-lora" in svg
    assert "train.py" in svg


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(program(), ["snapshot", "--demo", "-f", "json", "--folder", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "file" in result.stderr
    assert "Traceback" not in result.output


def test_formats_and_folder_are_those_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    folder = tmp_path / "taken"
    (tmp_path / "config.toml").write_text(f'[snapshot]\nfolder = "{folder}"\nformats = ["md", "csv"]\n')
    result = run(program(), ["snapshot", "--demo"])
    assert result.exit_code == 0
    paths = [Path(line) for line in result.stdout.splitlines()]
    assert [(path.parent, path.suffix) for path in paths] == [(folder, ".md"), (folder, ".csv")]
    result = run(program(), ["snapshot", "--demo", "-f", "json", "--folder", str(tmp_path / "other")])
    assert Path(result.stdout.strip()).parent == tmp_path / "other"
    (tmp_path / "config.toml").write_text("[snapshot]\nformats = 3\n")
    assert run(program(), ["snapshot", "--demo"]).exit_code == 2
