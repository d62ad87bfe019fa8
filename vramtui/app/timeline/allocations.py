"""The largest allocations alive at the traced peak: bytes, category, and the module and line that made them."""

from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.timeline.view import TimelineView
from vramtui.app.ui.bars import colour_of
from vramtui.app.ui.lines import Framed, Piece, fit, paragraph, right, strip
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_column, unit_of
from vramtui.core.estimate.ledger import TITLES, Line
from vramtui.estimators.traced.process.results import LiveAllocation

NOTHING = "A trace lists the ten largest allocations at the peak here, with the module and the line that made them."
SIZE, WHAT = 10, 12
# What people write when a tensor is copied to another device or type.
MOVED = {"aten._to_copy.default": ".to()", "aten._to_copy": ".to()"}


class Largest(Framed[TimelineView]):
    """A line for each."""

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        """As many as fit, the largest first."""
        result = view.result
        if result is None:
            return paragraph(NOTHING, palette, width)[:height]
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
        result = view.result
        return "Largest at the peak", "" if result is None else f"torch {printable(result.torch)}"


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
