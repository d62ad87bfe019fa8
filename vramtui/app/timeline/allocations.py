"""Beside the phases: the ten largest allocations at the peak, with the module and line that made them, and allocated
and reserved memory after every allocation and release.
"""

from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.timeline.view import TimelineView
from vramtui.app.ui.bars import colour_of
from vramtui.app.ui.graph.braille import DOTS, braille_rows, levels
from vramtui.app.ui.graph.memory_graph import AXIS, ticks
from vramtui.app.ui.lines import Framed, Piece, fit, paragraph, right, strip
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes, format_column, unit_of
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate, Part
from vramtui.core.estimate.ledger import TITLES, Line
from vramtui.dryrun.result import DryRun, LiveAllocation, TracePoint

NOTHING = "A trace lists the ten largest allocations at the peak here, with the module and the line that made them."
SIZE, WHAT = 10, 13
NAME, NAME_MOST = 22, 36
# What people write when a tensor is copied to another device or type.
MOVED = {"aten._to_copy.default": ".to()", "aten._to_copy": ".to()"}


class Largest(Framed[TimelineView]):
    """A line for each."""

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        """The largest allocations, as many as fit, the largest first."""
        result, estimate = view.result, _estimate(view)
        if result is None:
            strips = paragraph(NOTHING, palette, width) if estimate is None else _parts(estimate, palette, width)
            return strips[:height]
        rest = width - SIZE - WHAT - 3
        lined = any(allocation.line for allocation in result.largest)
        module = max(8, rest // 2) if lined else rest
        unit, name = unit_of(max((allocation.bytes for allocation in result.largest), default=0))
        heading = right(name, SIZE) + "  " + fit("what", WHAT) + fit("made by", module) + ("made at" if lined else "")
        strips = [strip([(heading, palette.dim)], width, palette.text)]
        strips += [_line(allocation, unit, module, palette, width) for allocation in result.largest]
        for warning in result.warnings:
            strips += paragraph(printable(warning), palette, width)
        return strips[:height]

    def titles(self, view: TimelineView) -> tuple[str, str]:
        result, estimate = view.result, _estimate(view)
        if result is None and estimate is not None:
            return f"Largest at the peak · {estimate.method}", f"in {PHASE_TITLES[estimate.peak_phase]}"
        return "Largest at the peak", "" if result is None else f"torch {printable(result.torch)}"


def at_peak(estimate: Estimate) -> list[Part]:
    """The parts that are alive at the peak, the largest first."""
    return sorted((part for part in estimate.parts if part.at_peak > 0), key=lambda part: -part.at_peak)


def _estimate(view: TimelineView) -> Estimate | None:
    return None if view.panel is None else view.panel.estimate


def _parts(estimate: Estimate, palette: Palette, width: int) -> list[Strip]:
    """A line for each part, and what the estimate takes for granted."""
    parts = at_peak(estimate)
    unit, name = unit_of(max((part.at_peak for part in parts), default=0))
    named = max(NAME, min(NAME_MOST, width // 5))
    heading = right(name, SIZE) + "  " + fit("what", WHAT) + fit("part", named) + "arithmetic"
    strips = [strip([(heading, palette.dim)], width, palette.text)]
    for part in parts:
        pieces: list[Piece] = [
            (right(format_column(part.at_peak, unit), SIZE), palette.text),
            ("  " + fit(TITLES[part.line], WHAT), palette.ink(colour_of(part.line))),
            (fit(printable(part.name), named - 1) + " ", palette.text),
            (fit(printable(part.formula), max(0, width - SIZE - WHAT - named - 3)), palette.dim),
        ]
        strips.append(strip(pieces, width, palette.text))
    for sentence in estimate.assumptions:
        strips += paragraph(printable(sentence), palette, width)
    return strips


def _line(allocation: LiveAllocation, unit: int, module: int, palette: Palette, width: int) -> Strip:
    category: Line | None = allocation.category if allocation.category in TITLES else None
    made_by = allocation.module or MOVED.get(
        allocation.operator, allocation.operator.removeprefix("aten.").removesuffix(".default")
    )
    pieces: list[Piece] = [
        (right(format_column(allocation.bytes, unit), SIZE), palette.text),
        (
            "  " + fit(TITLES[category] if category else printable(allocation.category), WHAT),
            palette.ink(colour_of(allocation.category)),
        ),
        (fit(printable(made_by), module - 1) + " ", palette.text),
        (place(printable(allocation.line)), palette.dim),
    ]
    return strip(pieces, width, palette.text)


def place(line: str) -> str:
    """`FILE:LINE` with the last folder only, which a narrow column can show."""
    return "/".join(line.split("/")[-2:])


NOT_DRAWN = "A trace draws allocated and reserved memory here, after every allocation and release."
_LEFT, _RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)


def sampled(series: tuple[TracePoint, ...], count: int) -> list[tuple[int, int]]:
    """The largest (allocated, reserved) in each of `count` equal stretches of events; the last value is repeated."""
    first, last = series[0].event, series[-1].event
    length = max(1, last - first + 1)
    highest: list[tuple[int, int] | None] = [None] * count
    for point in series:
        at = min(count - 1, (point.event - first) * count // length)
        before = highest[at] or (0, 0)
        highest[at] = (max(before[0], point.allocated), max(before[1], point.reserved))
    samples: list[tuple[int, int]] = []
    for here in highest:
        samples.append(here if here is not None else samples[-1])
    return samples


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
            words = view.running or NOT_DRAWN + starts
            return paragraph(words, palette, width)[:height]
        plot_width, plot_height = max(2, width - AXIS - 1), max(1, height - 2)
        points = sampled(result.series, plot_width * 2)
        ceiling = max(1, *(reserved for _, reserved in points), result.peak_allocated)
        fill = braille_rows(levels([point[0] for point in points], ceiling, plot_height), plot_height)
        line = outline(levels([point[1] for point in points], ceiling, plot_height), plot_height)
        labels = ticks(ceiling, plot_height)
        strips = [_peak_line(result, points, palette, width)]
        for y in range(plot_height):
            label = labels.get(y, "")
            axis: Piece = (right(label, AXIS - 1) + ("┤" if label else "│"), palette.dim)
            strips.append(strip([axis, *_merged(fill[y], line[y], palette)], width, palette.text))
        text = f"{result.events:,} allocations and releases"
        strips.append(
            strip(
                [(right("0", AXIS - 1) + "┴", palette.dim), (fit(f"─ {text}", plot_width), palette.dim)],
                width,
                palette.text,
            )
        )
        return strips[:height]

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


def _peak_line(result: DryRun, points: list[tuple[int, int]], palette: Palette, width: int) -> Strip:
    """An arrow above the peak and its figure beside it, on whichever side has room."""
    highest = max(range(len(points)), key=lambda at: points[at][0])
    at = AXIS + highest // 2
    step = f" {result.peak_step + 1}" if result.peak_step >= 0 else ""
    text = f"peak {format_bytes(result.peak_allocated)} in {result.peak_phase}{step}"
    style = palette.ink("prediction", bold=True)
    if at + 2 + len(text) <= width:
        return strip([(" " * at, style), (f"▾ {text}", style)], width, palette.text)
    return strip([(right(f"{text} ", max(0, at)), style), ("▾", style)], width, palette.text)
