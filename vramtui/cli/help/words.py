"""Sentences of help, as wide as the terminal."""

import shutil
import textwrap

from vramtui.core.base.text import printable

WIDEST = 110


def wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """`text` in lines as wide as the terminal: `first` before the first of them, `rest` before the others."""
    return textwrap.wrap(
        printable(text),
        min(WIDEST, max(40, shutil.get_terminal_size((WIDEST, 24)).columns)),
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
    )
