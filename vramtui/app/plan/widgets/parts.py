"""The parts of the cell under the cursor, and those of what it is set beside."""

from textual.strip import Strip

from vramtui.app.plan.view import PlanSide, PlanView
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Framed, Piece, fit, paragraph, right, strip
from vramtui.app.ui.parts_tree import EIGHTHS
from vramtui.core.base.units import GIB, KIB, MIB, UNKNOWN, format_column, unit_of
from vramtui.core.estimate.ledger import LINES, TITLES, TOTALS, Line, title_of

NAME, SIDE = 15, 10
_NAMES = {GIB: "GiB", MIB: "MiB", KIB: "KiB"}
NOT_YET = "Parts are shown for possible cells only."


class PlanParts(Framed[PlanView]):
    """A line for each part, the totals below; beside another preset also its figures and the difference."""

    def titles(self, plan: PlanView) -> tuple[str, str]:
        """Which cell, and what it is set beside."""
        if plan.side is None:
            return "Cell", ""
        other_title = f"{plan.other.what}: {plan.other.how}" if plan.other is not None else ""
        return f"Cell · {plan.side.how}", other_title

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        """A line for each part; where they do not fit, small parts give way to the totals."""
        if plan.side is None or plan.side.estimate is None:
            return paragraph(NOT_YET, palette, width)
        lines = shown_lines(plan, height - (plan.other is not None))
        unit, _ = unit_of(max((_at(side, line) or 0 for side in (plan.side, plan.other) for line in lines), default=0))
        strips = [_heading(plan, unit, palette, width)] if plan.other is not None else []
        most = max((_at(plan.side, line) or 0 for line in lines if line not in TOTALS), default=0)
        return [*strips, *(_line(plan, line, (most, unit), palette, width) for line in lines)][:height]


def shown_lines(plan: PlanView, height: int) -> list[Line]:
    """The lines that either side has, without the smallest where there are too many; totals stay."""
    lines = [line for line in LINES if _at(plan.side, line) or _at(plan.other, line)]
    while len(lines) > max(1, height):
        parts = [line for line in lines if line not in TOTALS] or lines[:-1]
        lines.remove(min(parts, key=lambda line: max(_at(plan.side, line) or 0, _at(plan.other, line) or 0)))
    return lines


def _at(side: PlanSide | None, line: Line) -> int | None:
    if side is None or side.estimate is None:
        return None
    return side.estimate.ledger.bytes_of(line)


def _bar(width: int, *, has_other: bool) -> int:
    return max(0, min(30, width - 2 - NAME - SIDE * (3 if has_other else 1)))


def _heading(plan: PlanView, unit: int, palette: Palette, width: int) -> Strip:
    start = " " + fit(f"in {_NAMES[unit]}", NAME + _bar(width, has_other=True))
    other_title = fit(plan.other.what, SIDE - 1) if plan.other is not None else ""
    text = start + right("cell", SIDE) + right(other_title.rstrip(), SIDE) + right("Δ", SIDE)
    return strip([(text, palette.dim)], width, palette.text)


def _line(plan: PlanView, line: Line, scale: tuple[int, int], palette: Palette, width: int) -> Strip:
    """`scale`: the bytes of the longest bar, and of the figures' unit, which they have where nothing else says it."""
    most, unit = scale
    total = line in TOTALS
    title = TITLES[line] if plan.device is None else title_of(line, plan.device.vendor)
    has_other = plan.other is not None
    count, other = _at(plan.side, line), _at(plan.other, line)
    style = palette.strong if total else palette.text
    bar = _bar(width, has_other=has_other)
    pieces: list[Piece] = [
        (" " + fit(f"── {title}" if total else title, NAME), style),
        (fit("" if total else _filled(count or 0, most, bar), bar), palette.ink(line.replace("_", "-"))),
        (
            right(format_column(count, unit) if has_other else f"{format_column(count, unit)} {_NAMES[unit]}", SIDE),
            style,
        ),
    ]
    if has_other:
        pieces += [(right(format_column(other, unit), SIDE), style), _difference(count, other, unit, palette)]
    return strip(pieces, width, palette.text)


def _difference(count: int | None, other: int | None, unit: int, palette: Palette) -> Piece:
    """The cell less what it is set beside: more is not better."""
    if count is None or other is None:
        return right(UNKNOWN, SIDE), palette.dim
    more = count - other
    if not more:
        return right("same", SIDE), palette.dim
    sign = "+" if more > 0 else "−"
    return right(sign + format_column(abs(more), unit), SIDE), palette.ink("warning" if more > 0 else "success")


def _filled(count: int, most: int, width: int) -> str:
    if not count or not most or not width:
        return ""
    whole, rest = divmod(max(1, round(count * width * 8 / most)), 8)
    return "█" * whole + (EIGHTHS[rest] if rest else "")
