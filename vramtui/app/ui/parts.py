"""Memory by category: stacked bars, and the tree of parts with each method's figure and the observed one."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.style import Style
from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece, delta_colour, delta_text, fit, right, strip
from vramtui.core.base.units import GIB, MIB, UNKNOWN, format_column, format_gib, format_short, unit_of
from vramtui.core.estimate.estimate import CATEGORIES, LEAVES, LETTERS, TITLES, TOTALS, Estimate
from vramtui.core.estimate.fits import ShownRow

HELD, PEAK = "█", "░"
# The longest title, "other libraries", and a space before its bar.
NAME, WIDEST_BAR = 16, 24
EIGHTHS = " ▏▎▍▌▋▊▉█"


def colour_of(category: str) -> str:
    return category.replace("_", "-")


def stack(
    categories: Mapping[str, int], allocated: int, peak: int, top: int, width: int, *, palette: Palette
) -> list[Piece]:
    """Return one bar: the memory held by category, then dimmed up to the peak; `width` columns are `top` bytes.

    Each boundary is rounded by itself, so that the bar's length is that of its sum. Memory of no category has no
    letter.
    """

    def cells(count: int) -> int:
        return min(width, round(count * width / top)) if top else 0

    pieces: list[Piece] = []
    total = drawn = 0
    for category in CATEGORIES:
        total += categories.get(category, 0)
        more = cells(total) - drawn
        drawn += max(0, more)
        if more > 0:
            colour = colour_of(category)
            pieces.append((LETTERS[category], palette.ink("background", colour, bold=True)))
            pieces.append((HELD * (more - 1), palette.ink(colour)))
    rest = cells(max(allocated, total)) - drawn
    beyond = cells(max(peak, allocated, total)) - drawn - rest
    pieces += [(HELD * rest, palette.ink("muted")), (PEAK * beyond, palette.dim)]
    return pieces


def legend(present: Collection[str], width: int, palette: Palette, *, undivided: bool = False) -> list[list[Piece]]:
    """Return the meaning of the letters in lines of `width` columns or less; `undivided` if bars lack letters."""
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


class Figures(NamedTuple):
    """A column of figures: `of` gives a row's text in a unit and its ink; None is the row's own."""

    title: str
    width: int
    of: Callable[[ShownRow, int], tuple[str, Style | None]]
    ink: Style | None = None


def sizes(title: str, width: int, of: Callable[[ShownRow], int | None]) -> Figures:
    """Return a column of bytes in the unit of the table."""
    return Figures(title, width, lambda row, unit: (format_column(of(row), unit), None))


def compared(palette: Palette, width: int, delta_width: int) -> tuple[Figures, Figures]:
    """Return the columns of observed memory and of Δ; lines that are observed together have one figure."""

    def observed(row: ShownRow, unit: int) -> tuple[str, Style | None]:
        text = "" if row.is_part else format_column(row.observed, unit)
        return text, palette.dim if row.observed is None else None

    def delta(row: ShownRow, _: int) -> tuple[str, Style | None]:
        off = row.fraction
        return ("", None) if off is None else (delta_text(off), palette.ink(delta_colour(off)))

    return Figures("observed", width, observed), Figures("Δ", delta_width, delta)


def part_lines(
    rows: Iterable[ShownRow],
    figures: Sequence[Figures],
    palette: Palette,
    width: int,
    height: int | None = None,
    *,
    name: int = NAME,
    weight: Callable[[ShownRow], int] = lambda row: row.predicted or 0,
    is_current: bool = True,
) -> list[Strip]:
    """Return a heading and the lines that fit in `height`: a part's name and bar, then its `figures`.

    The parts of the least `weight` give way first, totals never. Everything is grey if it `is_current` no more.
    """
    shown = list(rows)
    while height is not None and len(shown) > max(len(TOTALS), height - 1) and (leaves := [*filter(_is_leaf, shown)]):
        shown.remove(min(leaves, key=weight))
    largest = max((row.predicted or 0 for row in shown if _is_leaf(row)), default=0)
    unit, unit_name = unit_of(max((row.predicted or row.observed or 0 for row in shown), default=0))
    bar_width = max(0, min(WIDEST_BAR, width - name - 2 - sum(column.width for column in figures)))
    titles: list[Piece] = [(" " + fit(f"in {unit_name}", name + bar_width), palette.dim)]
    titles += [(right(column.title, column.width), column.ink or palette.dim) for column in figures]
    lines = [strip(titles, width, palette.text)]
    for row in shown:
        total = row.line in TOTALS
        style = palette.dim if not is_current else palette.strong if total else palette.text
        bar = bar_of(row.predicted if _is_leaf(row) else 0, largest, bar_width)
        title = f"── {row.title}" if total else "└ together" if row.is_subtotal else row.title
        colour = palette.ink(colour_of(row.line) if is_current else "line")
        pieces: list[Piece] = [(" " + fit(title, name), style), (fit(bar, bar_width), colour)]
        for column in figures:
            text, ink = column.of(row, unit)
            pieces.append((right(text, column.width), ink if ink is not None and is_current else style))
        lines.append(strip(pieces, width, palette.text))
    return lines


def _is_leaf(row: ShownRow) -> bool:
    return row.line not in TOTALS and not row.is_subtotal


def bar_of(count: int | None, largest: int, width: int) -> str:
    """A bar of `count` in at most `width` columns, in eighths of one; the `largest` count fills them."""
    if not count or not largest or not width:
        return ""
    whole, rest = divmod(max(1, round(count * width * 8 / largest)), 8)
    return "█" * whole + EIGHTHS[rest].strip()


def size_of(count: int | None) -> str:
    """Return GiB from a tenth of one on, and smaller units below, so that small parts are not shown as nothing."""
    if count is None:
        return UNKNOWN
    if count >= GIB // 10 or count == 0:
        return f"{format_gib(count)} GiB"
    return f"{count / MIB:.1f} MiB" if count >= MIB else format_short(count)


def same_parts(rule: Estimate, estimate: Estimate) -> int:
    """Return the bytes of `estimate` for the parts that a rule counts; of all parts if the rule names none."""
    counted = [line for line in LEAVES if rule.ledger.bytes_of(line) is not None]
    return sum(estimate.ledger.bytes_of(line) or 0 for line in counted or LEAVES)
