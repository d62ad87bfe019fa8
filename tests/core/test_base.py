import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import for_each, rows
from vramtui.core.base import units
from vramtui.core.base.colours import DARK, LIGHT
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.late import end_deferring, late, leave_docstrings_out
from vramtui.core.base.text import LONGEST_LINE, brief_command, paths_in_a_line, printable, printable_line
from vramtui.core.base.units import GIB, MIB, format_bytes, format_gib, format_in, format_short, parse_size, unit_of
from vramtui.core.observation.history import Curve

MODULE = "quopri"  # of the standard library, and of no use here


def test_a_curve_keeps_changes_and_its_largest_value_and_forgets_what_comes_later() -> None:
    curve = Curve(2)
    for at, point in enumerate([(1, 2), (1, 2), (1, 3), (1, 3), (0, 0)]):
        curve.add(float(at), point)
    assert list(curve.times) == [0.0, 2.0, 4.0]
    assert [list(series) for series in curve.values] == [[1, 1, 0], [2, 3, 0]]
    curve = Curve()
    for at in range(1000):
        curve.add(float(at), (999 if at == 411 else at % 7,), limit=50)
    assert len(curve.times) <= 50
    assert max(curve.values[0]) == 999
    curve = Curve()
    for at in range(10):
        curve.add(float(at), (at,))
    curve.add(4.0, (44,))
    assert (list(curve.times), list(curve.values[0])) == ([0.0, 1.0, 2.0, 3.0, 4.0], [0, 1, 2, 3, 44])


def test_a_module_is_loaded_at_its_first_call_and_without_docstrings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    encoded = late(f"{MODULE}:encodestring")
    leave_docstrings_out()
    assert MODULE not in sys.modules
    assert encoded(b"=") == b"=3D"
    end_deferring()
    assert sys.modules[MODULE].encode.__doc__ is None


def test_what_a_terminal_obeys_is_replaced_and_other_text_is_left_alone() -> None:
    """Of a key of a config.json, which was named in an error as it stood there, too; and a flood of marks ends."""
    assert printable("[red]x[/] \x1b[2J\x1b]0;pwn\x07") == "[red]x[/] ␛[2J␛]0;pwn␇"
    for character in ("\x9b", "\u202e", "\u200b", "\u2028", "\x85", "\ud800", "\U000e0001"):
        assert printable(f"a{character}b") == "a\ufffdb"
    assert str(UserError("no \u202efig.size\x1b[2J\nnor another\x9b")) == "no \ufffdfig.size␛[2J\nnor another\ufffd"
    assert printable("a" + "\u0301" * 1200) == "a" + "\u0301" * 4 + "\ufffd" * 1196
    assert printable("a" + "\u0301" * 5) == "a" + "\u0301" * 4 + "\ufffd"
    for text in ("", "python train.py", "训练.py --größe 4", "naïve café", "a b", "ế", "e\u0302\u0301", "שִׁ֣", "น้ำ"):
        assert printable(text) == text


@given(st.text() | st.text(alphabet=st.sampled_from("ab\u0301\u20dd\u202e")))
def test_what_comes_out_can_be_shown_and_shows_the_same_again(text: str) -> None:
    safe = printable(text)
    assert len(safe) == len(text)
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in safe)
    assert printable(safe) == safe
    safe.encode("utf-8")


@pytest.mark.parametrize(("command", "brief"), rows(__file__, "a_command_in_a_narrow"))
def test_a_command_in_a_narrow_column_says_what_is_run(command: str, brief: str) -> None:
    assert brief_command(command) == brief


def test_the_nearest_name_may_begin_with_the_word_and_files_of_one_name_are_told_by_their_endings() -> None:
    names = ["qwen-3-8b-lora-long", "qwen-3-8b-lora", "gpt2-124m"]
    assert nearest("qwen3", names) == " (did you mean qwen-3-8b-lora?)"
    assert nearest("gpt2-125m", names) == " (did you mean gpt2-124m?)"
    assert nearest("--", names) == nearest("---", names) == nearest("zz", names) == ""
    assert paths_in_a_line(["/a/b.c/x-1.json", "/a/b.c/x-1.csv", "/a/b.c/x-1.html"]) == "/a/b.c/x-1.json .csv .html"
    assert paths_in_a_line(["/a/x.json"]) == "/a/x.json"
    assert paths_in_a_line(["/a/x.json", "/b/x.csv"]) == "/a/x.json\n/b/x.csv"
    assert (paths_in_a_line(["/a/x", "/a/y"]), paths_in_a_line([])) == ("/a/x\n/a/y", "")
    text = "\x1b[2Jé" * 1000
    assert (printable_line(text), printable_line("é" * 1_000_000)) == (printable(text), "é" * LONGEST_LINE)


@for_each(rows(__file__, "written"))
def test_how_a_value_is_written(function: str, unit: str, value: float | str, text: str) -> None:
    """Percentages are signed and never minus zero, durations show their two largest units, a column has one unit, and a
    figure under a unit never reads as nothing. "none" is None.
    """
    write: Callable[..., str] = getattr(units, function)
    assert write(None if value == "none" else value, **({"unit": getattr(units, unit)} if unit else {})) == text


@given(st.integers(1, 1 << 50))
def test_a_short_size_takes_eight_columns_at_most(count: int) -> None:
    assert len(format_short(count)) <= 8
    assert len(format_in(count, unit_of(count)[0])) <= 9


@pytest.mark.parametrize(
    ("text", "count"),
    [("24GiB", 24 * GIB), ("24 gb", 24 * 10**9), ("512", 512), ("1.5g", 3 * GIB // 2), (" 80 MiB ", 80 * MIB)],
)
def test_sizes_are_read_with_their_unit(text: str, count: int) -> None:
    assert parse_size(text) == count


@given(st.integers(min_value=0, max_value=2**50))
def test_a_formatted_size_reads_back_within_its_rounding(count: int) -> None:
    assert abs(parse_size(format_bytes(count)) - count) <= 0.05 * count + 1
    assert abs(float(format_gib(count, 3)) * GIB - count) <= GIB / 1000


@pytest.mark.parametrize(("text", "said"), [
    *((text, "is not a size") for text in ("", "GiB", "-1GiB", "1..5g", "12 parsecs", "1e9")),
    *((text, "more memory than any host has") for text in ("9" * 400, "9" * 5000 + "GiB", "1048577TiB")),
])  # fmt: skip
def test_what_is_no_size_is_a_short_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse_size(text)
    assert len(str(caught.value)) < 500


# Machado, Oliveira, Fernandes 2009, severity 1.0: what linear RGB looks like without the cone.
SIGHT = {
    "all cones": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
WHITE = (0.95047, 1.0, 1.08883)
TOLD_APART = 20.0  # in CIE 1976 L*a*b*; 2.3 is a just noticeable difference of large patches side by side
PAIRS = (
    ("weights", "optimizer"), ("weights", "gradients"), ("gradients", "optimizer"), ("weights", "master-weights"),
    ("optimizer", "master-weights"), ("optimizer", "activations"), ("weights", "activations"),
    ("activations", "temporaries"),
)  # fmt: skip
Triple = tuple[float, float, float]


def times(matrix: tuple[Triple, ...], vector: Triple) -> Triple:
    a, b, c = (sum(weight * value for weight, value in zip(row, vector, strict=True)) for row in matrix)
    return a, b, c


def lab(colour: str, sight: str) -> Triple:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = tuple(one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in (red, green, blue))
    seen = tuple(min(1.0, max(0.0, one)) for one in times(SIGHT[sight], (linear[0], linear[1], linear[2])))
    xyz = times(TO_XYZ, (seen[0], seen[1], seen[2]))
    scaled = [one / white for one, white in zip(xyz, WHITE, strict=True)]
    x, y, z = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in scaled)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
def test_neighbours_are_told_apart(theme: dict[str, str], one: str, other: str, sight: str) -> None:
    first, second = lab(theme[one], sight), lab(theme[other], sight)
    assert sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5 >= TOLD_APART
