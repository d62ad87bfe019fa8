"""Tables for people, on a terminal or in a pipe; JSON for programs."""

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from vramtui.core.base.late import late
from vramtui.core.base.text import printable

if TYPE_CHECKING:
    from rich.console import Console

# rich takes milliseconds to load, and these characters are one column wide.
NARROW = frozenset(map(chr, range(0x20, 0x7F))) | set("–−Δ·…▾▴")
cell_len, set_cell_size = late("rich.cells:cell_len"), late("rich.cells:set_cell_size")
PIPE_WIDTH = 400
WHOLE = 1 << 20  # columns: more than any row has
NARROWEST = 12
NARROWEST_TEXT = 40
WIDEST_HELP = 110
GAP = 3
_UNIT = r"(?<=\d) (?=%|[KMGT]i?B\b)"


def print_json(document: object, *, single: bool = True) -> None:
    """A JSON document on standard output, indented for a person who looks; of several each is a line."""
    import msgspec

    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        from vramtui.records.export.plain import clean

        # Names of files may be bytes that are no text; JSON knows only text.
        encoded = msgspec.json.encode(clean(msgspec.to_builtins(document)))
    sys.stdout.write((msgspec.json.format(encoded, indent=2) if single else encoded).decode() + "\n")


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), spare: Sequence[int] = ()
) -> None:
    """An aligned table; the columns in `right` hold numbers. On a terminal, the last column is cut at its edge; if the
    others are too wide, those in `spare` are left out, the first of them first, and then text is cut. In a pipe or a
    file the table is whole: what `grep` is to find must not be cut.
    """
    sizes = [
        [len(cell) if cell.isascii() or NARROW.issuperset(cell) else cell_len(cell) for cell in row]
        for row in (headings, *rows)
    ]

    def widths_of(columns: Sequence[int]) -> list[int]:
        return [max(row[at] for row in sizes) for at in columns]

    width, columns = table_width(), list(range(len(headings)))
    for column in spare:
        *others, last = widths_of(columns)
        if sum(others) + min(last, NARROWEST) + (GAP - 1) * len(others) > width:
            columns.remove(column)
    gaps, widths = len(columns) - 1, widths_of(columns)
    # The last column gives way first, then the gaps, then the widest text.
    widths[-1] = min(widths[-1], max(NARROWEST, width - sum(widths[:-1]) - GAP * gaps))
    gap = GAP if sum(widths) + GAP * gaps <= width else GAP - 1
    texts = [number for number, at in enumerate(columns) if at not in right]
    while texts and sum(widths) + gap * gaps > width:
        widest = max(texts, key=lambda number: widths[number])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    lines = []
    for row, taken in zip((headings, *rows), sizes, strict=True):
        cells = []
        for at, wide in zip(columns, widths, strict=True):
            cell, filling = row[at], " " * (wide - taken[at])
            cell = f"{set_cell_size(cell, wide - 1)}…" if taken[at] > wide else cell
            cells.append(filling + cell if at in right else cell + filling)
        lines.append((" " * gap).join(cells).rstrip())
    heading, *lines = lines
    is_bold = sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    sys.stdout.write(f"\x1b[1m{heading}\x1b[0m\n" if is_bold else heading + "\n")
    rule = "─" * min(sum(widths) + gap * gaps, text_width())
    sys.stdout.write("".join(f"{line}\n" for line in (rule, *lines)))


def table_width() -> int:
    """Columns that a table may take: the terminal's; in a pipe or a file as many as it wants."""
    return terminal_columns() if sys.stdout.isatty() else WHOLE


def terminal_columns(otherwise: int = 80, *streams: TextIO | None) -> int:
    """Return what COLUMNS or the first terminal says, as shutil does, which takes longer to load; or `otherwise`."""
    with suppress(ValueError):
        if (asked := int(os.environ.get("COLUMNS", ""))) > 0:
            return asked
    for stream in (sys.__stdout__, *streams):
        with suppress(AttributeError, ValueError, OSError):  # it is closed, or no terminal
            if columns := os.get_terminal_size(stream.fileno()).columns:  # type: ignore[union-attr]  # None is suppressed
                return columns
    return otherwise


def text_width(in_a_pipe: int = PIPE_WIDTH) -> int:
    """Columns for sentences: the terminal's, also where they reach it by `| head`; `in_a_pipe` of them elsewhere."""
    return max(terminal_columns(in_a_pipe, sys.stderr), NARROWEST_TEXT)


def print_wrapped(text: str, width: int) -> None:
    """Each line of `text` broken between words where it is longer than `width` columns."""
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        print(filled(line, width, rest=indent or "  ", break_long_words=False))


def filled(text: str, width: int, first: str = "", rest: str = "  ", *, break_long_words: bool = True) -> str:
    """`text` broken between words, but not between a number and its unit."""
    text = printable(text)
    if text.isprintable() and text[-1:] not in ("", " ") and len(first) + len(text) <= width:
        return first + text  # as textwrap has it, which takes a millisecond to load
    wrapper = textwrap.TextWrapper(width, first, rest, break_on_hyphens=False, break_long_words=break_long_words)
    return wrapper.fill(re.sub(_UNIT, "\xa0", text)).replace("\xa0", " ")


def wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """A page's `text` in lines as wide as the terminal: `first` before the first of them, `rest` before the others."""
    width = min(WIDEST_HELP, max(NARROWEST_TEXT, terminal_columns(WIDEST_HELP)))
    return filled(text, width, first, first if rest is None else rest).splitlines()


def plain_console(width: int | None) -> "Console":
    """Rich's console for text that is what it is, in so many columns; None takes the terminal's."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            """Let a reader end early (`| head`); rich would end with code 1."""
            raise BrokenPipeError

    return Plain(width=width, highlight=False, markup=False, emoji=False)
