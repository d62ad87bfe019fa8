"""A terminal without Unicode, and one without colours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.app import moments
from tests.app.driving import climbing, dashboard, screen_text
from vramtui.app.terminal.ascii import plain_text


async def test_everything_on_the_screen_has_an_ascii_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_ASCII", "1")
    async with dashboard([*climbing(), moments.troubled()]) as (app, _):
        text = screen_text(app)
        assert text.isascii()
        assert "?" not in text.replace("? help", "")


async def test_no_color_sends_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with dashboard(climbing()) as (app, _):
        strips = app.screen._compositor.render_strips()
        styles = [segment.style for strip in strips for segment in strip if segment.style]
        colours = {colour for style in styles for colour in (style.color, style.bgcolor) if colour}
        assert all(colour.is_default for colour in colours)
        assert "vramtui" in screen_text(app)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Mn", "Me", "Cf"]), max_size=20))
def test_columns_are_kept(text: str) -> None:
    plain = plain_text(text)
    assert plain.isascii()
    if cell_len(text) == len(text):
        assert len(plain) == len(text)


def test_the_edges_of_a_bar_do_not_look_used() -> None:
    assert plain_text("▐██┊░▒▌") == "|##|.=|"
