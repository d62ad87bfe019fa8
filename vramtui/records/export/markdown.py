"""Markdown from parts that may hold anything: process names and commands are written by whoever started them."""

from collections.abc import Iterable, Sequence

from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN

_PLAIN = frozenset(" ,-/=")
_IN_PROSE = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {c: f"\\{c}" for c in "\\`*_[]|~$#@!"}


def code(text: str | None) -> str:
    """Untrusted text, shown letter by letter: no markup, HTML, link or mention in it comes alive, nor a table's bar.

    A code span holds most of it. Where the text has characters that can end a span or a table's cell, or that would
    be HTML if it were cut out of its span, it stands in a `<code>` element, every sign in it spelt as a number.
    """
    if not text:
        return UNKNOWN
    text = printable(text)
    if not text.strip():
        return f"<code>{'&nbsp;' * len(text)}</code>"
    if not set(text) & set("`|\\<>&"):
        return f"`{text}`"
    spelt = (c if c.isalnum() or c in _PLAIN or not c.isascii() else f"&#{ord(c)};" for c in text)
    return f"<code>{''.join(spelt)}</code>"


def prose(text: str) -> str:
    """A sentence that may quote something: its words stay words."""
    return "".join(_IN_PROSE.get(c, c) for c in printable(text))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> list[str]:
    """The lines of a table whose cells are Markdown already; the columns `numbers` are set to the right."""
    rules = ["---:" if column in numbers else "---" for column in range(len(headings))]
    return [_line(cells) for cells in (headings, rules, *rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
