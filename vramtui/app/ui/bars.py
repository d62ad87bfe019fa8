"""Stacked bars of memory by category: its colour, and its letter at the beginning of each piece."""

from collections.abc import Collection, Mapping

from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece
from vramtui.core.estimate.ledger import CATEGORIES, LETTERS, TITLES

HELD, PEAK = "█", "░"


def colour_of(category: str) -> str:
    """The theme variable of a category."""
    return category.replace("_", "-")


def stack(
    categories: Mapping[str, int], allocated: int, peak: int, top: int, width: int, *, palette: Palette
) -> list[Piece]:
    """One bar: what is held by category, then quietly up to the peak; `width` columns are `top` bytes.

    Each boundary is rounded by itself, so that the bar's length is that of its sum. What is held beyond the known
    categories is drawn without a letter.
    """
    pieces: list[Piece] = []
    drawn, total = 0, 0
    for category in CATEGORIES:
        total += categories.get(category, 0)
        cells = _cells(total, top, width) - drawn
        drawn += max(0, cells)
        if cells > 0:
            colour = colour_of(category)
            pieces.append((LETTERS[category], palette.ink("background", colour, bold=True)))
            pieces.append((HELD * (cells - 1), palette.ink(colour)))
    rest = _cells(max(allocated, total), top, width) - drawn
    beyond = _cells(max(peak, allocated, total), top, width) - drawn - rest
    pieces += [(HELD * rest, palette.ink("muted")), (PEAK * beyond, palette.dim)]
    return pieces


def _cells(count: int, top: int, width: int) -> int:
    return min(width, round(count * width / top)) if top else 0


def legend(present: Collection[str], width: int, palette: Palette, *, undivided: bool = False) -> list[list[Piece]]:
    """What the letters mean, in lines of at most `width` columns; `undivided` says that there are bars without them."""
    lines: list[list[Piece]] = [[(" ", palette.text)]]
    room = width - 1
    known = [(LETTERS[name], TITLES[name], colour_of(name)) for name in CATEGORIES if name in present]
    plain = [(HELD, "total only", "")] if undivided else []
    for sign, title, colour in [*known, *plain, (PEAK, "up to the phase's peak", "")]:
        length = len(sign) + len(title) + 3
        if length > room:
            lines.append([(" ", palette.text)])
            room = width - 1
        style = palette.ink("background", colour, bold=True) if colour else palette.dim
        lines[-1] += [(sign, style), (f" {title}  ", palette.dim)]
        room -= length
    return lines
