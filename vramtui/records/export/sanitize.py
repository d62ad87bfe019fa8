"""Values on their way into a document: text that no terminal obeys, HTML from parts that may hold anything, numbers
that JSON knows, times a person reads.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from html import escape
from math import isfinite
from typing import Any

import msgspec

from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN


def clean(value: Any) -> Any:  # noqa: ANN401 - a tree of whatever JSON can hold
    """`value` with every text in it (keys too) made printable, and every float that JSON cannot write as None."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {printable(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(entry) for entry in value]
    return value


def json_text(document: object) -> str:
    """A document as the text of a file."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def count(value: int | None) -> str:
    """A whole number with its thousands apart and a true minus sign."""
    return UNKNOWN if value is None else f"{value:,}".replace("-", "−")


def moment(seconds: float) -> datetime | None:
    """Seconds since the epoch as this machine's local time; None if it is not a possible time."""
    try:
        return datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone()
    except (OverflowError, ValueError, OSError):
        return None


def iso_time(seconds: float | None) -> str:
    """Seconds since the epoch as `2026-01-31 14:05:09 +01:00`."""
    when = None if seconds is None else moment(seconds)
    if when is None:
        return UNKNOWN
    offset = when.strftime("%z")
    return f"{when:%Y-%m-%d %H:%M:%S} {offset[:3]}:{offset[3:5]}"


def text(value: str | None) -> str:
    """Untrusted text as text; a dash for what is not known."""
    return escape(printable(value)) if value else UNKNOWN


def tag(name: str, *inner: str, **attributes: str | float | None) -> str:
    """An element. `inner` is HTML already; attributes are escaped here, and `class_` is `class`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{''.join(inner)}</{name}>"


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
