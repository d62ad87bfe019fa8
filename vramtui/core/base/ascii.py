"""For terminals without Unicode: every character of ours has one in ASCII that reads the same."""

from collections.abc import Mapping

from vramtui.core.base.late import late

_normalize = late("unicodedata:normalize")  # a megabyte of tables, for terminals without Unicode
_PAIRS = {
    "█▓▉▊▋": "#",
    "▁▂▃": ".",
    "▄▅▆": ":",
    "▇": "#",
    "▒": "=",
    "░": ".",
    "▌▍▎▏▐┊│┃┤├┌┐└┘┼": "|",
    "┄─━┴┬—": "-",
    "╭╮╰╯": "+",
    "▸▶›→": ">",
    "‹◂←⏎": "<",
    "▾↓": "v",
    "▴↑▲": "^",
    "✓": "+",
    "✗": "x",
    "·": "-",
    "–−": "-",
    "…±≈": "~",
    "Δ": "d",
    "°": "'",
    "×": "x",
    "“”": '"',
    "‘’": "'",
    "‖": "=",
    "●•": "*",
    "◐○": "o",
    "√": "r",
    "σ": "s",
}
_TABLE = {ord(character): plain for characters, plain in _PAIRS.items() for character in characters}
_DENSITY = " ..::||##"


def ascii_wanted(environment: Mapping[str, str], encoding: str | None = None) -> bool:
    """Return whether the terminal's encoding has no Unicode, or `VRAMTUI_ASCII` asks for none."""
    asked = environment.get("VRAMTUI_ASCII", "0") not in ("", "0")
    return asked or not (encoding or "utf-8").lower().startswith("utf")


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
    if 0x2400 <= code <= 0x2421:
        return "^"  # a picture of a control character
    base = _normalize("NFKD", character)[0]  # é is e with a mark, ² is 2 set high
    return base if base.isascii() and base.isprintable() else "?"


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """A handler for `codecs.register_error` that writes ASCII for characters that the encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return plain_text(error.object[error.start : error.end]), error.end
