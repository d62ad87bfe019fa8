import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.theme import BUILTIN_THEMES

from tests.tables import rows
from vramtui.app.themes import THEMES
from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import Settings, ThemeName
from vramtui.presets.settings import example_settings, find_setting_problems, read_settings


def test_the_example_says_what_holds_without_a_file(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "config.toml") == Settings()
    assert set(get_args(ThemeName)) == {theme.name for theme in THEMES} | set(BUILTIN_THEMES)
    path = tmp_path / "config.toml"
    path.write_text(example_settings())
    assert read_settings(path) == Settings()
    path.write_text(re.sub(r"(?m)^# (?=[a-z\"])(?!vramtui)", "", example_settings()))
    chosen = read_settings(path)
    given = msgspec.to_builtins(chosen)
    for table, defaults in msgspec.to_builtins(Settings()).items():
        for key, default in defaults.items():
            value = given[table][key]
            assert value == default or (default is None and value is not None)
    assert chosen.keys == {"watch.snapshot": "s"}
    assert chosen.alerts.command


@pytest.mark.parametrize(("text", "sentence"), rows(__file__, "what_is_wrong_is_one_sentence"))
def test_what_is_wrong_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(f"config.toml:{sentence}")):
        read_settings(path)


@given(st.text() | st.sampled_from(example_settings().splitlines()))
def test_any_text_is_settings_or_problems(text: str) -> None:
    for problem in find_setting_problems(text):
        assert problem.sentence
