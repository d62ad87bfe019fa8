"""HTML from parts that may hold anything."""

from collections.abc import Iterable, Sequence
from html import escape

from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN


def text(value: str | None) -> str:
    """Untrusted text as text; a dash for what is not known."""
    return escape(printable(value)) if value else UNKNOWN


def tag(name: str, *inner: str, **attributes: str | float | None) -> str:
    """An element. `inner` is HTML already; attributes are escaped here, and `class_` is `class`."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{told}>{''.join(inner)}</{name}>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table whose cells are HTML already. On a narrow page each row is a block of its own, with a line for each cell
    behind its column's name, so that nothing is cut.
    """

    def row(kind: str, cells: Sequence[str], names: Sequence[str | None]) -> str:
        pairs = enumerate(zip(cells, names, strict=True))
        return tag(
            "tr",
            *(tag(kind, cell, class_="n" if at in numbers else None, data_name=name) for at, (cell, name) in pairs),
        )

    body = "".join(row("td", cells, headings) for cells in rows)
    inner = tag("table", tag("thead", row("th", headings, [None] * len(headings))), tag("tbody", body))
    return tag("div", inner, class_="wide")
