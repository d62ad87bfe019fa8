"""Tables for people, on a terminal or in a pipe; JSON for programs."""

import json
import os
import sys
from collections.abc import Sequence

PIPE_WIDTH = 400


def print_json(document: object) -> None:
    """One JSON document on standard output, indented for a person who looks."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=True) + "\n")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """An aligned table; the columns in `right` hold numbers. The last column is cut at the terminal's edge."""
    from rich import box  # noqa: PLC0415 - rich takes 40 ms to load, which JSON answers need not pay
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        last = number == len(headings) - 1
        table.add_column(
            Text(heading),
            justify="right" if number in right else "left",
            no_wrap=True,
            overflow="ellipsis" if last else "fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", PIPE_WIDTH))
    Console(width=width, highlight=False, markup=False, emoji=False).print(table)
