"""What is largest at the peak: of a trace the allocations with the module and line that made them, of an estimate its
parts with their arithmetic.
"""

from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.timeline.view import TimelineView
from vramtui.app.ui.bars import colour_of
from vramtui.app.ui.lines import Framed, Piece, fit, paragraph, right, strip
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_column, unit_of
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate, Part
from vramtui.core.estimate.ledger import TITLES, Line
from vramtui.estimators.traced.process.results import LiveAllocation

NOTHING = "A trace lists the ten largest allocations at the peak here, with the module and the line that made them."
SIZE, WHAT = 10, 13
NAME, NAME_MOST = 22, 36
# What people write when a tensor is copied to another device or type.
MOVED = {"aten._to_copy.default": ".to()", "aten._to_copy": ".to()"}


class Largest(Framed[TimelineView]):
    """A line for each."""

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        """As many as fit, the largest first."""
        result, estimate = view.result, _estimate(view)
        if result is None:
            made = paragraph(NOTHING, palette, width) if estimate is None else _parts(estimate, palette, width)
            return made[:height]
        rest = width - SIZE - WHAT - 3
        lined = any(held.line for held in result.largest)
        module = max(8, rest // 2) if lined else rest
        unit, name = unit_of(max((held.bytes for held in result.largest), default=0))
        heading = right(name, SIZE) + "  " + fit("what", WHAT) + fit("made by", module) + ("made at" if lined else "")
        made = [strip([(heading, palette.dim)], width, palette.text)]
        made += [_line(held, unit, module, palette, width) for held in result.largest]
        for warning in result.warnings:
            made += paragraph(printable(warning), palette, width)
        return made[:height]

    def titles(self, view: TimelineView) -> tuple[str, str]:
        """When they are alive."""
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
    made = [strip([(heading, palette.dim)], width, palette.text)]
    for part in parts:
        pieces: list[Piece] = [
            (right(format_column(part.at_peak, unit), SIZE), palette.text),
            ("  " + fit(TITLES[part.line], WHAT), palette.ink(colour_of(part.line))),
            (fit(printable(part.name), named - 1) + " ", palette.text),
            (fit(printable(part.formula), max(0, width - SIZE - WHAT - named - 3)), palette.dim),
        ]
        made.append(strip(pieces, width, palette.text))
    for sentence in estimate.assumptions:
        made += paragraph(printable(sentence), palette, width)
    return made


def _line(held: LiveAllocation, unit: int, module: int, palette: Palette, width: int) -> Strip:
    category: Line | None = held.category if held.category in TITLES else None
    made_by = held.module or MOVED.get(held.operator, held.operator.removeprefix("aten.").removesuffix(".default"))
    pieces: list[Piece] = [
        (right(format_column(held.bytes, unit), SIZE), palette.text),
        (
            "  " + fit(TITLES[category] if category else printable(held.category), WHAT),
            palette.ink(colour_of(held.category)),
        ),
        (fit(printable(made_by), module - 1) + " ", palette.text),
        (place(printable(held.line)), palette.dim),
    ]
    return strip(pieces, width, palette.text)


def place(line: str) -> str:
    """`FILE:LINE` with the last folder only, which a narrow column can show."""
    return "/".join(line.split("/")[-2:])
