import json
from pathlib import Path

import pytest

from tests.commands import invoke
from vramtui.core.base import toml
from vramtui.presets.settings import find_setting_problems

SETTINGS = ["doctor", "--settings"]


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config" / "config.toml"


def test_settings_are_shown_as_toml_with_their_sources(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "nano")
    shown = invoke(*SETTINGS)
    assert shown.exit_code == 0
    assert f"# {path} (does not exist" in shown.stdout
    assert f"nano {path}" in shown.stdout
    assert toml.loads(shown.stdout)["dashboard"]["interval"] == 1.0
    path.parent.mkdir()
    path.write_text('[dashboard]\ninterval = 2\n[keys]\n"watch.snapshot" = "w"\n')
    monkeypatch.setenv("VRAMTUI_THEME", "vramtui-light")
    text = invoke(*SETTINGS).stdout
    again = toml.loads(text)
    assert again["dashboard"]["interval"] == 2.0
    assert again["keys"] == {"watch.snapshot": "w"}
    assert "interval = 2.0  # file\n" in text
    assert 'theme = "vramtui-light"  # VRAMTUI_THEME\n' in text
    document = json.loads(invoke(*SETTINGS, "--json").stdout)
    assert (document["exists"], document["settings"]["dashboard"]["interval"]) == (True, 2.0)
    assert document["sources"]["dashboard.theme"] == "VRAMTUI_THEME"


def test_the_output_is_a_settings_file_and_every_error_of_one_is_reported(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("")
    assert find_setting_problems(invoke(*SETTINGS).stdout) == ()
    path.write_text("[dashboard]\ninterval = 0\nthem = 1\n")
    done = invoke(*SETTINGS)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 2
