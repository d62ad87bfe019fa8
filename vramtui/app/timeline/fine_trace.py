"""The fine trace: allocated and reserved over every allocation and release, with the peak marked."""

from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.timeline.view import TimelineView
from vramtui.app.ui.graph.braille import DOTS, braille_rows, levels
from vramtui.app.ui.graph.memory_graph import AXIS, ticks
from vramtui.app.ui.lines import Framed, Piece, fit, paragraph, right, strip
from vramtui.core.base.units import format_bytes
from vramtui.estimators.traced.process.results import TracePoint, TraceResult

NOTHING = "A trace draws allocated and reserved memory here, after every allocation and release."
_LEFT, _RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)


def sampled(series: tuple[TracePoint, ...], count: int) -> list[tuple[int, int]]:
    """The largest (allocated, reserved) in each of `count` equal stretches of events; the last value is repeated."""
    first, last = series[0].event, series[-1].event
    length = max(1, last - first + 1)
    found: list[tuple[int, int] | None] = [None] * count
    for point in series:
        at = min(count - 1, (point.event - first) * count // length)
        before = found[at] or (0, 0)
        found[at] = (max(before[0], point.allocated), max(before[1], point.reserved))
    made: list[tuple[int, int]] = []
    for here in found:
        made.append(here if here is not None else made[-1])
    return made


def outline(dots: list[int], height: int) -> list[str]:
    """A line of braille dots at the levels `dots` (two for each column), as rows, the top one first."""
    rows = []
    for row in range(height - 1, -1, -1):
        cells = []
        for x in range(0, len(dots) - 1, 2):
            left, after = dots[x] - row * DOTS, dots[x + 1] - row * DOTS
            code = (_LEFT[left - 1] if 0 < left <= DOTS else 0) + (_RIGHT[after - 1] if 0 < after <= DOTS else 0)
            cells.append(chr(0x2800 + code) if code else " ")
        rows.append("".join(cells))
    return rows


class FineTrace(Framed[TimelineView]):
    """Filled braille for allocated, a dotted line for reserved."""

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        """A line for the peak's mark, the plot, and the axis of events."""
        result = view.result
        if result is None or not result.series:
            starts = "" if view.refusal else " Press t to start one."
            words = view.running or NOTHING + starts
            return paragraph(words, palette, width)[:height]
        plot_width, plot_height = max(2, width - AXIS - 1), max(1, height - 2)
        points = sampled(result.series, plot_width * 2)
        ceiling = max(1, *(reserved for _, reserved in points), result.peak_allocated)
        fill = braille_rows(levels([point[0] for point in points], ceiling, plot_height), plot_height)
        line = outline(levels([point[1] for point in points], ceiling, plot_height), plot_height)
        labels = ticks(ceiling, plot_height)
        made = [_peak_line(result, points, palette, width)]
        for y in range(plot_height):
            label = labels.get(y, "")
            axis: Piece = (right(label, AXIS - 1) + ("┤" if label else "│"), palette.dim)
            made.append(strip([axis, *_merged(fill[y], line[y], palette)], width, palette.text))
        text = f"{result.events:,} allocations and releases"
        made.append(
            strip(
                [(right("0", AXIS - 1) + "┴", palette.dim), (fit(f"─ {text}", plot_width), palette.dim)],
                width,
                palette.text,
            )
        )
        return made[:height]

    def titles(self, view: TimelineView) -> tuple[str, str]:
        """What is drawn, and how to tell the two apart."""
        del view
        return "Fine trace", "filled: allocated · dots: reserved"


def _merged(fill: str, line: str, palette: Palette) -> list[Piece]:
    """The filled area, with the line where nothing is filled."""
    used, quiet = palette.ink("used"), palette.ink("prediction")
    pieces: list[Piece] = []
    for filled, dotted in zip(fill, line, strict=True):
        piece: Piece = (filled, used) if filled != " " else (dotted, quiet)
        if pieces and pieces[-1][1] is piece[1]:
            pieces[-1] = (pieces[-1][0] + piece[0], piece[1])
        else:
            pieces.append(piece)
    return pieces


def _peak_line(result: TraceResult, points: list[tuple[int, int]], palette: Palette, width: int) -> Strip:
    """An arrow above the peak and its figure beside it, on whichever side has room."""
    highest = max(range(len(points)), key=lambda at: points[at][0])
    at = AXIS + highest // 2
    step = f" {result.peak_step + 1}" if result.peak_step >= 0 else ""
    text = f"peak {format_bytes(result.peak_allocated)} in {result.peak_phase}{step}"
    style = palette.ink("prediction", bold=True)
    if at + 2 + len(text) <= width:
        return strip([(" " * at, style), (f"▾ {text}", style)], width, palette.text)
    return strip([(right(f"{text} ", max(0, at)), style), ("▾", style)], width, palette.text)
