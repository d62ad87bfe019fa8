"""For terminals without Unicode: every character of ours has one in ASCII that reads the same."""

import os
import sys

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_PAIRS = {
    "█▓▉▊▋": "#",
    "▁▂▃": ".",
    "▄▅▆": ":",
    "▇": "#",
    "▒": "=",
    "░": ".",
    "▌▍▎▏▐┊│┃┤├┌┐└┘": "|",
    "┄─━┴": "-",
    "╭╮╰╯": "+",
    "▸▶›": ">",
    "‹◂": "<",
    "▾↓": "v",
    "▴↑": "^",
    "✓": "+",
    "✗": "x",
    "·": "-",
    "–−": "-",
    "…": "~",
    "Δ": "d",
    "°": "'",
    "×": "x",
    "“”": '"',
    "‖": "=",
    "●": "*",
}
_TABLE = {ord(character): plain for characters, plain in _PAIRS.items() for character in characters}
_DENSITY = " ..::||##"


def ascii_wanted() -> bool:
    """Whether the terminal's encoding has no Unicode, or `VRAMTUI_ASCII` asks for none."""
    if os.environ.get("VRAMTUI_ASCII", "0") not in ("", "0"):
        return True
    encoding = (getattr(sys.__stdout__, "encoding", None) or "utf-8").lower().replace("-", "")
    return not encoding.startswith("utf")


def plain_text(text: str) -> str:
    """`text` in ASCII, column for column: a braille cell by how full it is, anything unknown as `?`."""
    if text.isascii():
        return text
    text = text.translate(_TABLE)
    return "".join(character if character.isascii() else _other(character) for character in text)


def _other(character: str) -> str:
    code = ord(character)
    if 0x2800 <= code <= 0x28FF:
        return _DENSITY[(code - 0x2800).bit_count()]
    # Pictures of control characters.
    return "^" if 0x2400 <= code <= 0x2421 else "?"


class AsciiFilter(LineFilter):
    """Lets only ASCII through to the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments in ASCII."""
        del background
        return [Segment(plain_text(text), style, control) for text, style, control in segments]
