import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.color import Color
from textual.theme import BUILTIN_THEMES
from textual.widgets import Input, OptionList

from tests.app import scenes
from tests.app.driver import climbing, dashboard, known, press, screen_text
from vramtui.app.themes import THEMES, Palette, contrast, palette_variables
from vramtui.core.base.text import plain_text
from vramtui.core.schema.settings import ThemeName

CATEGORIES = ("weights", "gradients", "optimizer", "activations", "kv-cache", "used", "prediction")


def test_themes_and_characters_are_known_in_sixteen_colours_and_ascii() -> None:
    assert set(get_args(ThemeName)) >= {theme.name for theme in THEMES} | set(BUILTIN_THEMES)
    ansi = next(theme for theme in THEMES if theme.ansi)
    made = palette_variables(ansi.to_color_system().generate(), dark=True)
    assert Palette(made).ink("background", "warning").color == Color.parse("ansi_black").rich_color
    assert Palette(made).ink("background").color == Color.parse("ansi_default").rich_color
    plain = Palette(made, plain=True)
    assert plain.ink("background", "warning").color == Color.parse("ansi_default").rich_color, "where none are drawn"
    unnamed = {"\N{REPLACEMENT CHARACTER}", "\N{ZERO WIDTH NO-BREAK SPACE}", "¦"}  # the last only separates help
    lost = {
        (character, path.name)
        for path in (ROOT / "vramtui").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for character in set(node.value) - unnamed
        if not character.isascii() and plain_text(character) == "?"
    }
    assert not lost
    assert plain_text("▐██┊░▒▌") == "|##|.=|"  # the edges of a bar do not look used
    assert plain_text("café ×2, 8²") == "cafe x2, 82"


@pytest.mark.parametrize("name", [name for name, theme in BUILTIN_THEMES.items() if not theme.ansi])
def test_text_and_categories_can_be_told_from_the_background(name: str) -> None:
    theme = BUILTIN_THEMES[name]
    made = palette_variables(theme.to_color_system().generate(), dark=theme.dark)
    background = Color.parse(made["background"])
    assert contrast(background, Color.parse(made["foreground"])) >= 4.5
    assert contrast(background, Color.parse(made["muted"])) >= 2.5
    assert min(contrast(background, Color.parse(made[part])) for part in CATEGORIES) >= 1.7


@pytest.mark.parametrize("name", [name for name, theme in BUILTIN_THEMES.items() if not theme.ansi])
@pytest.mark.parametrize("on", ["background", "bar", "cursor"])
def test_coloured_text_can_be_read(name: str, on: str) -> None:
    theme = BUILTIN_THEMES[name]
    palette = Palette(palette_variables(theme.to_color_system().generate(), dark=theme.dark))
    for ink in ("success", "warning", "error", "primary", "tab", "accent", "prediction", "muted"):
        style = palette.ink(ink, on)
        assert style.color is not None
        assert style.bgcolor is not None
        of_text, of_ground = (Color.from_rich_color(one) for one in (style.color, style.bgcolor))
        assert contrast(of_text, of_ground) >= 2.99, ink


async def test_a_theme_is_shown_while_the_cursor_is_on_it_and_kept_by_enter() -> None:
    async with dashboard(climbing()) as (app, pilot):
        await press(app, pilot, "ctrl+t", *"nord")
        assert app.theme == "nord"
        await press(app, pilot, "escape")
        assert app.theme == "vramtui-dark"
        await press(app, pilot, "ctrl+t", *"gruvbox", "enter")
        assert app.theme == "gruvbox"
        assert "vramtui" in screen_text(app)


@pytest.mark.parametrize("plain", [True, False])
async def test_the_chosen_line_is_marked_in_any_colours(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    async with dashboard([scenes.usual()]) as (app, pilot):
        app.theme = "vramtui-ansi"
        await press(app, pilot, "ctrl+p")
        options = app.screen.query_one(OptionList)
        assert options.highlighted == 0
        looks = [{(one.underline, one.bgcolor) for _, one, _ in options.render_line(at) if one} for at in (0, 1)]
        assert looks[0].isdisjoint(looks[1])
        typed = app.screen.query_one(Input).render_line(0)
        marked = [(text, one.color, one.bgcolor) for text, one, _ in typed if one and one.reverse]
        default = Color.parse("ansi_default").rich_color
        assert marked == [("f", default, default)]  # on "filter", in the terminal's own two colours
        assert bool(known(app.colours.palette).ink("error", "cursor").reverse) is plain


ROOT = Path(__file__).parents[2]


async def test_arrow_keys_are_words_in_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_ASCII", "1")
    async with dashboard(climbing()) as (app, pilot):
        await pilot.press("question_mark")
        assert re.search(r"\bup k +Up\b", screen_text(app))
        assert "enter keep" in await press(app, pilot, "escape", "slash")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Mn", "Me", "Cf"]), max_size=20))
def test_columns_are_kept(text: str) -> None:
    plain = plain_text(text)
    assert plain.isascii()
    if cell_len(text) == len(text):
        assert len(plain) == len(text)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_command_writes_ascii_where_the_output_has_no_unicode(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "vramtui", "estimate", "llama-3.1-8b-lora"]
    answer = subprocess.run(command, env=environment, capture_output=True, check=False).stdout.decode(encoding)
    assert "#####" in answer
    assert "?" not in answer
