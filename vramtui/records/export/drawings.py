"""Drawings: stacked bars and a process's memory over time.

Shapes are SVG stretched to the room there is, on a scale of their own; words and figures stand beside them as text of
the page, so that they are as easy to read on a phone and on paper.
"""

from collections.abc import Sequence

import msgspec

from vramtui.core.base.units import format_bytes, format_duration
from vramtui.records.export.sanitize import tag, text

WIDTH, HEIGHT = 1000.0, 100.0


class BarPiece(msgspec.Struct, frozen=True):
    """One stretch of a bar: what it is called, the colour's name, bytes."""

    title: str
    colour: str
    bytes: int


class BarDrawing(msgspec.Struct, frozen=True):
    """A stacked bar under one label; `total` is written at its end."""

    label: str
    pieces: tuple[BarPiece, ...]
    total: str = ""


def stacked(bars: Sequence[BarDrawing], most: int, mark: int | None = None) -> str:
    """Bars one below the other on the scale from 0 to `most` bytes, with a line at `mark`."""
    return tag("div", *(_bar(bar, most, mark) for bar in bars), class_="bars")


def _bar(bar: BarDrawing, most: int, mark: int | None) -> str:
    drawn: list[str] = []
    x = 0.0
    for piece in bar.pieces:
        width = WIDTH * piece.bytes / most if most else 0.0
        title = tag("title", text(f"{piece.title}: {format_bytes(piece.bytes, 2)}"))
        drawn.append(
            tag("rect", title, x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=HEIGHT, class_=f"c-{piece.colour}")
        )
        x += width
    if mark is not None and most:
        at = f"{WIDTH * min(mark, most) / most:.1f}"
        drawn.append(tag("line", x1=at, x2=at, y1=0, y2=HEIGHT, class_="mark"))
    # The bar comes last in the text, so that on a phone it stands below its words.
    return tag(
        "div",
        tag("span", text(bar.label), class_="label"),
        tag("span", text(bar.total), class_="total"),
        _svg(drawn, "track"),
        class_="bar",
    )


def over_time(
    times: Sequence[float], values: Sequence[int], predicted: int | None, ends: tuple[str, str] | None = None
) -> str:
    """Memory over time as an area, with the predicted peak as a line.

    Args:
        times: seconds of each value, which holds until the next.
        values: bytes.
        predicted: the line's height in bytes.
        ends: what stands at the beginning and the end of time; how long ago, and now, when None.
    """
    most = max(*values, predicted or 0, 1)
    drawn = [_area(times, values, most)]
    words: list[str] = []
    if predicted:
        y = f"{HEIGHT * (1 - predicted / most):.1f}"
        drawn.append(tag("line", x1=0, x2=WIDTH, y1=y, y2=y, class_="mark"))
        words = [tag("p", f"┄ predicted peak {text(format_bytes(predicted))}", class_="mark")]
    scale = (tag("span", text(format_bytes(round(most * share)))) for share in (1.0, 0.5, 0.0))
    return tag(
        "div",
        *words,
        tag("div", *scale, class_="scale"),
        _svg(drawn, "graph"),
        tag("div", *(tag("span", text(end)) for end in ends or _ago(times)), class_="ends"),
        class_="time",
    )


def _area(times: Sequence[float], values: Sequence[int], most: int) -> str:
    first, last = times[0], times[-1]
    span = (last - first) or 1.0

    def at(seconds: float, size: float) -> str:
        return f"{WIDTH * (seconds - first) / span:.1f},{HEIGHT * (1 - size / most):.1f}"

    corners = [at(first, 0)]
    level = 0
    for seconds, size in zip(times, values, strict=True):
        corners += [at(seconds, level), at(seconds, size)]
        level = size
    corners += [at(last, 0)]
    return tag("polygon", points=" ".join(corners), class_="area")


def _ago(times: Sequence[float]) -> tuple[str, str]:
    return f"{format_duration(times[-1] - times[0])} ago", "now"


def _svg(drawn: list[str], kind: str) -> str:
    box = f"0 0 {WIDTH:.0f} {HEIGHT:.0f}"
    return tag("svg", *drawn, viewBox=box, preserveAspectRatio="none", role="img", class_=kind)
