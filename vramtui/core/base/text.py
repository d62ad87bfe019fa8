"""Untrusted text made safe to show (process names and commands can hold anything), and text in ASCII."""

import re
from collections.abc import Mapping, Sequence

from vramtui.core.base.late import late

_category = late("unicodedata:category")  # a megabyte of tables, for what is not ASCII
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MARKS = {"Mn", "Me"}
# Marks on one character: Vietnamese and Hebrew have up to three, and Tibetan four. A terminal puts any number into one
# cell, or none of them where it should.
MOST_MARKS = 4
_REPLACEMENT = "\ufffd"
_PYTHON = "(python|pypy)[0-9.]*t?"
_PYTHON_FLAGS = {"-u", "-B", "-E", "-I", "-O", "-OO", "-P", "-q", "-s", "-S"}
# Characters that a line of 1,000 columns can show, with four marks on each, and of a program's folder before them.
LONGEST_LINE = 8192
MOST_REASON = 300  # characters of a reason that quotes what somebody wrote


def printable(text: str) -> str:
    """`text` with every character that a terminal could obey replaced by one it only shows.

    Control characters become their pictures (ESC is ␛), so that a reader still sees what was there; invisible
    formatting, bidirectional overrides, lone surrogates and the fifth and every further mark on one character become
    the replacement character.
    """
    # Each that is not ASCII takes a byte more at least; of so few none is one mark too many.
    if text.isprintable() and (text.isascii() or len(text.encode()) - len(text) <= MOST_MARKS):
        return text
    letters: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if not character.isascii() and _category(character) in _MARKS else 0
        code = ord(character)
        if code < 0x20 or code == 0x7F:
            letters.append("\u2421" if code == 0x7F else chr(0x2400 + code))
        else:
            letters.append(_REPLACEMENT if marks > MOST_MARKS or _category(character) in _UNSAFE else character)
    return "".join(letters)


def printable_line(text: str) -> str:
    """The beginning of `text`, as `printable`: as much as any line shows. A command line may have 64 KiB, and one
    that is not ASCII is looked at character by character.
    """
    return printable(text[:LONGEST_LINE])


def shortened(reason: str, most: int = MOST_REASON) -> str:
    """A reason whose beginning says what is wrong and whose end says where; a value of any length may stand between."""
    half = most // 2
    return reason if len(reason) <= most else f"{reason[:half]}…{reason[1 - half :]}"


def brief_command(command: str) -> str:
    """A command line for a narrow column: without the program's folder, and scripts and modules without Python.

    `/opt/conda/bin/python -u /data/train.py --lr 1` is `train.py --lr 1`: what tells jobs apart comes first.
    """
    program, *rest = command.split(" ")
    name = program.rpartition("/")[2] if program.startswith(("/", "./", "~/")) else program
    if re.fullmatch(_PYTHON, name):
        after = [number for number, word in enumerate(rest) if word not in _PYTHON_FLAGS]
        words = rest[after[0] :] if after else []
        if words and words[0] == "-m":
            return " ".join(words[1:]) or command
        if words and not words[0].startswith("-"):
            return " ".join([words[0].rpartition("/")[2] or words[0], *words[1:]])
    return " ".join([name or program, *rest])


def paths_in_a_line(paths: Sequence[str]) -> str:
    """Paths of files for a line: the first, and of others that differ only in their ending just that."""
    stem = paths[0].rpartition(".")[0] if paths else ""
    same = all(path.startswith(f"{stem}.") and "/" not in path[len(stem) :] for path in paths)
    shown = [paths[0], *(path[len(stem) :] for path in paths[1:])] if stem and same else list(paths)
    return (" " if same else "\n").join(shown)


def toml_words(values: Mapping[str, object]) -> str:
    """Keys and values in one line, as TOML spells them but for quotes."""
    return ", ".join(f"{key} = {_spelt(value)}" for key, value in values.items() if value is not None)


def _spelt(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {_spelt(part)}' for key, part in value.items())}}}"
    return f"[{', '.join(map(_spelt, value))}]" if isinstance(value, (list, tuple)) else str(value)


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
