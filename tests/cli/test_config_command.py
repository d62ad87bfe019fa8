"""`vramtui config` shows, checks and edits the settings."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vramtui.cli.main import program
from vramtui.core.base import toml
from vramtui.presets.settings import example_settings

invoke = CliRunner().invoke


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config" / "config.toml"


def test_what_holds_is_shown_as_toml(path: Path) -> None:
    shown = invoke(program(), ["config", "show"])
    assert shown.exit_code == 0
    assert "not found: all defaults" in shown.stdout
    assert toml.loads(shown.stdout)["dashboard"]["interval"] == 1.0
    path.parent.mkdir()
    path.write_text('[dashboard]\ninterval = 2\n[keys]\n"watch.snapshot" = "w"\n')
    again = toml.loads(invoke(program(), ["config", "show"]).stdout)
    assert again["dashboard"]["interval"] == 2.0
    assert again["keys"] == {"watch.snapshot": "w"}
    document = json.loads(invoke(program(), ["config", "show", "--json"]).stdout)
    assert (document["exists"], document["settings"]["dashboard"]["interval"]) == (True, 2.0)


def test_everything_that_is_wrong_is_told(path: Path) -> None:
    assert invoke(program(), ["config", "check"]).exit_code == 0
    path.parent.mkdir()
    path.write_text("[dashboard]\ninterval = 0\nthem = 1\n")
    done = invoke(program(), ["config", "check"])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 2
    path.write_text("")
    assert "is right" in invoke(program(), ["config", "check"]).stdout


def test_editing_makes_the_file_and_checks_it_afterwards(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "true")
    done = invoke(program(), ["config", "edit"])
    assert done.exit_code == 0
    assert path.read_text() == example_settings()
    monkeypatch.setenv("EDITOR", "sh -c 'echo x >> \"$0\"'")
    assert invoke(program(), ["config", "edit"]).exit_code == 2
    monkeypatch.setenv("EDITOR", "no-such-editor")
    done = invoke(program(), ["config", "edit"])
    assert (done.exit_code, "no-such-editor cannot be started" in done.stderr) == (2, True)
    monkeypatch.setenv("EDITOR", "false")
    assert "ended with 1" in invoke(program(), ["config", "edit"]).stderr
