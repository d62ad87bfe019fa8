import re
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.tables import rows
from vramtui.cli.common.settings import VARIABLES, settings_in_force
from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import CONFIG

PAGE = Path(__file__).parents[2] / "docs" / "many-machines.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def test_what_goes_before_what(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_in_force().dashboard.interval == 1.0
    (folder / CONFIG).write_text('[dashboard]\ninterval = 2.0\nmonitor = true\ntheme = "nord"\n')
    assert settings_in_force().dashboard.interval == 2.0
    monkeypatch.setenv("VRAMTUI_INTERVAL", "3")
    monkeypatch.setenv("VRAMTUI_MONITOR", "no")
    monkeypatch.setenv("VRAMTUI_THEME", "")
    now = settings_in_force({"interval": None}).dashboard
    assert (now.interval, now.monitor, now.theme) == (3.0, False, "nord")
    assert settings_in_force({"interval": 4.0}).dashboard.interval == 4.0


@pytest.mark.parametrize(("variable", "value", "sentence"), rows(__file__, "a_wrong_value_is_one_sentence"))
def test_a_wrong_value_is_told(variable: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UserError, match=re.escape(sentence)):
        settings_in_force()


def test_the_settings_name_the_variable_and_the_page_has_every_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_GROUP", "user")
    shown = invoke("doctor", "--settings").stdout
    assert 'group = "user"  # VRAMTUI_GROUP' in shown
    rows = re.findall(r"\| `(VRAMTUI_\w+)` \| `([\w.]+)` \|", PAGE.read_text(encoding="utf-8"))
    assert dict(rows) == VARIABLES
