"""The allocator's segments at the selected step, each with its blocks, as a row of cells."""

from textual.strip import Strip

from vramtui.app.lab.model import LabStep, LabView
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Framed, Piece, fit, paragraph, right, strip
from vramtui.core.base.units import format_short
from vramtui.estimators.lab.runner import HeldSegment

NAME, FIGURE = 17, 10
LEAST_BAR = 10
FREE = "·"
HELD = ("█", "▓")  # two blocks side by side are told apart
NOTHING = "A trace draws the allocator's segments here, and the blocks that each is divided into."
EMPTY = "No segment: nothing is reserved."
Block = tuple[int, int, bool]


class LabBlocks(Framed[LabView]):
    """A row for each segment; what is new since the step before is bright."""

    def build(self, view: LabView, palette: Palette, width: int, height: int) -> list[Strip]:
        """The segments that fit, then what the signs mean."""
        step = view.step
        if step is None or step.row is None:
            return paragraph(NOTHING, palette, width)[:height]
        if not step.segments:
            return paragraph(EMPTY, palette, width)[:height]
        former = _known(view.before)
        room = max(1, height - 1)
        shown = step.segments[: room if len(step.segments) <= room else max(1, room - 1)]
        made = [_row(segment, former, palette, width) for segment in shown]
        if len(shown) < len(step.segments):
            rest = step.segments[len(shown) :]
            words = f" and {len(rest)} segments more, {format_short(sum(one.size for one in rest))}"
            made.append(strip([(words, palette.dim)], width, palette.text))
        return [*made, _legend(palette, width)][:height]

    def titles(self, view: LabView) -> tuple[str, str]:
        """The step."""
        step = view.step
        if step is None or step.row is None:
            return "Allocator's blocks", ""
        blocks = [block for segment in step.segments for block in segment.blocks]
        held = sum(block.held for block in blocks)
        figures = f"{len(step.segments)} segments · {held} blocks held, {len(blocks) - held} free"
        return f"Allocator's blocks after {step.label}", figures


def _known(step: LabStep | None) -> frozenset[tuple[int, int]]:
    """Addresses and sizes of the blocks that were held at a step."""
    if step is None:
        return frozenset()
    return frozenset(
        (segment.address + at, size) for segment in step.segments for at, size, held in placed(segment) if held
    )


def placed(segment: HeldSegment) -> list[Block]:
    """Offset in the segment, bytes, and whether it is held, of each block."""
    made: list[Block] = []
    at = 0
    for block in segment.blocks:
        made.append((at, block.size, block.held))
        at += block.size
    return made


def cells(segment: HeldSegment, former: frozenset[tuple[int, int]], width: int) -> list[tuple[str, bool]]:
    """A sign for each of `width` cells, and whether its block is new.

    A cell shows the largest held block in it, and is free only where nothing in it is held: a small tensor in a
    large segment is seen.
    """
    drawn: list[tuple[str, bool]] = [(FREE, False)] * width
    largest = [0] * width
    for number, (at, size, held) in enumerate(placed(segment)):
        if not held:
            continue
        first, last = at * width // segment.size, (at + size - 1) * width // segment.size
        for cell in range(first, min(width, last + 1)):
            start, stop = cell * segment.size // width, (cell + 1) * segment.size // width
            share = min(stop, at + size) - max(start, at)
            if share > largest[cell]:
                largest[cell] = share
                drawn[cell] = (HELD[number % 2], (segment.address + at, size) not in former)
    return drawn


def _row(segment: HeldSegment, former: frozenset[tuple[int, int]], palette: Palette, width: int) -> Strip:
    bar = max(LEAST_BAR, width - NAME - FIGURE - 3)
    held = sum(block.size for block in segment.blocks if block.held)
    pieces: list[Piece] = [(" " + fit(f"{format_short(segment.size)} {segment.pool}", NAME), palette.text)]
    for sign, new in cells(segment, former, bar):
        style = palette.dim if sign == FREE else palette.ink("accent" if new else "used")
        if len(pieces) > 1 and pieces[-1][1] is style:
            pieces[-1] = (pieces[-1][0] + sign, style)
        else:
            pieces.append((sign, style))
    pieces.append((right(format_short(held), FIGURE), palette.dim))
    return strip(pieces, width, palette.text)


def _legend(palette: Palette, width: int) -> Strip:
    pieces: list[Piece] = [
        (f" {''.join(HELD)}", palette.ink("used")),
        (" held  ", palette.dim),
        ("".join(HELD), palette.ink("accent")),
        (" new at this step  ", palette.dim),
        (FREE, palette.dim),
        (" free; at the right the bytes held", palette.dim),
    ]
    return strip(pieces, width, palette.text)
