"""For terminals without Unicode: every character of ours has one in ASCII that reads the same."""

from collections.abc import Mapping

from vramtui.core.base.late import late

_normalize = late("unicodedata:normalize")  # a megabyte of tables, for terminals without Unicode
_PAIRS = {
    "█▓▉▊▋": "#", "▁▂▃": ".", "▄▅▆": ":", "▇": "#", "▒": "=", "░": ".", "▌▍▎▏▐┊│┃┤├┌┐└┘┼": "|", "┄─━┴┬—": "-",
    "╭╮╰╯": "+", "▸▶›→": ">", "‹◂←⏎": "<", "▾↓": "v", "▴↑▲": "^", "✓": "+", "✗": "x", "·": "-", "–−": "-", "…±≈": "~",
    "Δ": "d", "°": "'", "×": "x", "“”": '"', "‘’": "'", "‖": "=", "●•": "*", "◐○": "o", "√": "r", "σ": "s",
}  # fmt: skip
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
    plain: list[str] = []
    for character in text.translate(_TABLE):
        code = ord(character)
        if code < 0x80:
            plain.append(character)
        elif 0x2800 <= code <= 0x28FF:
            plain.append(_DENSITY[(code - 0x2800).bit_count()])
        elif 0x2400 <= code <= 0x2421:
            plain.append("^")  # a picture of a control character
        else:
            base = _normalize("NFKD", character)[0]  # é is e with a mark, ² is 2 set high
            plain.append(base if base.isascii() and base.isprintable() else "?")
    return "".join(plain)


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """A handler for `codecs.register_error` that writes ASCII for characters that the encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return plain_text(error.object[error.start : error.end]), error.end
