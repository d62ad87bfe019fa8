"""Text from outside can be shown, whatever it holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import rows
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import LONGEST_LINE, brief_command, paths_in_a_line, printable, printable_line


def test_a_hostile_name_becomes_harmless_and_stays_readable() -> None:
    assert printable("[red]x[/] \x1b[2J\x1b]0;pwn\x07") == "[red]x[/] ␛[2J␛]0;pwn␇"


@pytest.mark.parametrize("character", ["\x9b", "\u202e", "\u200b", "\u2028", "\x85", "\ud800", "\U000e0001"])
def test_invisible_and_c1_characters_are_replaced(character: str) -> None:
    assert printable(f"a{character}b") == "a\ufffdb"


@pytest.mark.parametrize("text", ["", "python train.py", "训练.py --größe 4", "naïve café", "a b"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert printable(text) == text


def test_an_error_shows_what_it_quotes() -> None:
    """A key of a config.json was named in one as it stood there."""
    assert str(UserError("no \u202efig.size\x1b[2J\nnor another\x9b")) == "no \ufffdfig.size␛[2J\nnor another\ufffd"


def test_a_flood_of_marks_ends() -> None:
    assert printable("a" + "\u0301" * 1200) == "a" + "\u0301" * 4 + "\ufffd" * 1196
    assert printable("a" + "\u0301" * 5) == "a" + "\u0301" * 4 + "\ufffd"
    for word in ("ế", "e\u0302\u0301", "שִׁ֣", "น้ำ"):
        assert printable(word) == word


@given(st.text() | st.text(alphabet=st.sampled_from("ab\u0301\u20dd\u202e")))
def test_what_comes_out_can_be_shown_and_shows_the_same_again(text: str) -> None:
    safe = printable(text)
    assert len(safe) == len(text)
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in safe)
    assert printable(safe) == safe
    safe.encode("utf-8")


@pytest.mark.parametrize(
    ("command", "brief"),
    rows(__file__, "a_command_in_a_narrow"),
)
def test_a_command_in_a_narrow_column_says_what_is_run(command: str, brief: str) -> None:
    assert brief_command(command) == brief


def test_the_nearest_name_may_be_one_that_begins_with_the_word() -> None:
    names = ["qwen-3-8b-lora-long", "qwen-3-8b-lora", "gpt2-124m"]
    assert nearest("qwen3", names) == " (did you mean qwen-3-8b-lora?)"
    assert nearest("gpt2-125m", names) == " (did you mean gpt2-124m?)"
    assert nearest("--", names) == nearest("---", names) == nearest("zz", names) == ""


def test_files_of_one_name_are_told_by_their_endings() -> None:
    assert paths_in_a_line(["/a/b.c/x-1.json", "/a/b.c/x-1.csv", "/a/b.c/x-1.html"]) == "/a/b.c/x-1.json .csv .html"
    assert paths_in_a_line(["/a/x.json"]) == "/a/x.json"
    assert paths_in_a_line(["/a/x.json", "/b/x.csv"]) == "/a/x.json\n/b/x.csv"
    assert paths_in_a_line(["/a/x", "/a/y"]) == "/a/x\n/a/y"
    assert paths_in_a_line([]) == ""


def test_of_a_text_of_any_length_a_line_is_made_safe() -> None:
    text = "\x1b[2Jé" * 1000
    assert printable_line(text) == printable(text)
    assert printable_line("é" * 1_000_000) == "é" * LONGEST_LINE
