"""Drawings in SVG: stacked bars and a process's memory over time. Sizes are in the drawing's own units."""

from collections.abc import Sequence

import msgspec

from vramtui.core.units import format_bytes, format_duration
from vramtui.records.html.text import tag, text

WIDTH = 720.0
BAR, GAP, LABEL, LETTER = 22.0, 8.0, 110.0, 7.4
HEIGHT, BELOW = 180.0, 24.0


class Piece(msgspec.Struct, frozen=True):
    """One stretch of a bar: what it is called, the colour's name, bytes."""

    title: str
    colour: str
    bytes: int


class Bar(msgspec.Struct, frozen=True):
    """A stacked bar under one label; `total` is written at its end."""

    label: str
    pieces: tuple[Piece, ...]
    total: str = ""


def stacked(bars: Sequence[Bar], most: int, mark: int | None = None) -> str:
    """Bars one below the other on the scale from 0 to `most` bytes, with a line at `mark`."""
    beside = max((len(bar.total) for bar in bars), default=0) * LETTER
    room = WIDTH - LABEL - max(LABEL, beside)
    drawn: list[str] = []
    for row, bar in enumerate(bars):
        y = row * (BAR + GAP)
        drawn.append(tag("text", text(bar.label), x=0, y=y + BAR * 0.7))
        x = LABEL
        for piece in bar.pieces:
            width = room * piece.bytes / most if most else 0.0
            title = tag("title", text(f"{piece.title}: {format_bytes(piece.bytes, 2)}"))
            drawn.append(
                tag("rect", title, x=f"{x:.1f}", y=y, width=f"{width:.1f}", height=BAR, class_=f"c-{piece.colour}")
            )
            x += width
        drawn.append(tag("text", text(bar.total), x=f"{x + 6:.1f}", y=y + BAR * 0.7))
    height = len(bars) * (BAR + GAP)
    if mark is not None and most:
        at = f"{LABEL + room * min(mark, most) / most:.1f}"
        drawn.append(tag("line", x1=at, x2=at, y1=0, y2=height - GAP, class_="mark"))
    return _svg(drawn, height)


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
    most = 1.08 * max(*values, predicted or 0, 1)
    first, last = times[0], times[-1]
    span = (last - first) or 1.0

    def at(seconds: float, size: float) -> tuple[float, float]:
        return LABEL + (WIDTH - LABEL) * (seconds - first) / span, HEIGHT * (1 - size / most)

    corners = [at(first, 0)]
    level = 0
    for seconds, size in zip(times, values, strict=True):
        corners += [at(seconds, level), at(seconds, size)]
        level = size
    corners += [at(last, 0)]
    drawn = [tag("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners), class_="area")]
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT * (1 - share / 1.08)
        drawn.append(tag("text", text(format_bytes(round(most / 1.08 * share))), x=0, y=f"{max(12.0, y):.1f}"))
    if predicted:
        y = at(first, predicted)[1]
        drawn.append(tag("line", x1=LABEL, x2=WIDTH, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="mark"))
        drawn.append(tag("text", "predicted peak", x=WIDTH - 100, y=f"{y - 4:.1f}", class_="mark"))
    start, end = ends or (f"{format_duration(span)} ago", "now")
    drawn.append(tag("text", text(start), x=LABEL, y=HEIGHT + BELOW * 0.7))
    drawn.append(tag("text", text(end), x=WIDTH - max(26.0, LETTER * len(end)), y=HEIGHT + BELOW * 0.7))
    return _svg(drawn, HEIGHT + BELOW)


def _svg(drawn: list[str], height: float) -> str:
    return tag("svg", *drawn, viewBox=f"0 0 {WIDTH:.0f} {height:.0f}", role="img")
