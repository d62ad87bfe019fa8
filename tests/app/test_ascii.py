"""A terminal without Unicode, and one without colours."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.app.driver import climbing, dashboard, screen_text, settle
from vramtui.core.base.text import plain_text

ROOT = Path(__file__).parents[2]


async def test_arrow_keys_are_words_in_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_ASCII", "1")
    async with dashboard(climbing()) as (app, pilot):
        await pilot.press("question_mark")
        assert re.search(r"\bup k +Up\b", screen_text(app))
        await pilot.press("escape", "slash")
        await settle(app, pilot)
        assert "enter keep" in screen_text(app)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Mn", "Me", "Cf"]), max_size=20))
def test_columns_are_kept(text: str) -> None:
    plain = plain_text(text)
    assert plain.isascii()
    if cell_len(text) == len(text):
        assert len(plain) == len(text)


def test_every_character_that_the_program_can_print_has_one_in_ascii() -> None:
    unnamed = {"\N{REPLACEMENT CHARACTER}", "\N{ZERO WIDTH NO-BREAK SPACE}"}
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


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_command_writes_ascii_where_the_output_has_no_unicode(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "vramtui", "estimate", "llama-3.1-8b-lora"]
    answer = subprocess.run(command, env=environment, capture_output=True, check=False).stdout.decode(encoding)
    assert "#####" in answer
    assert "?" not in answer
