"""Memory by category: stacked bars, and the tree of parts with each method's figure and the observed one."""

from collections.abc import Collection, Mapping, Sequence

from textual.strip import Strip

from vramtui.app.state.view import Panel
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece, delta_colour, delta_text, fit, right, strip
from vramtui.core.base.units import GIB, MIB, QUICK, UNKNOWN, format_column, format_gib, format_short, unit_of
from vramtui.core.estimate.estimate import CATEGORIES, CUDA, LEAVES, LETTERS, LINES, TITLES, TOTALS, Estimate
from vramtui.core.estimate.fits import Comparison, ComparisonRow, ShownRow, shown_rows

HELD, PEAK = "█", "░"
# The longest title, "other libraries", and a space before its bar.
NAME, SIDE, DELTA = 16, 9, 8
EIGHTHS = " ▏▎▍▌▋▊▉█"
LEAST_NAME = 11


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


def tree(panel: Panel, comparison: Comparison, palette: Palette, width: int, height: int) -> list[Strip]:
    """Return a heading and the lines that fit: prediction, observed memory and their difference; then a variant, and a
    trace if there is room, in columns of their own.

    The smallest parts give way first, totals never.
    """
    more: list[tuple[str, Estimate]] = []
    if panel.matched is not None and panel.estimate is not None:
        more.append(("what if", panel.estimate))
    if panel.traced is not None and panel.traced is not panel.estimate:
        more.append(("dry run", panel.traced))
    more = more[: max(1, (width - 1 - LEAST_NAME - DELTA) // SIDE - 2)]
    figures = (2 + len(more)) * SIDE + DELTA
    name_width = NAME if not more else max(LEAST_NAME, min(NAME, width - 1 - figures))
    bar_width = max(0, min(24, width - (NAME + figures + 2)))
    rows = list(shown_rows(_with_variant(comparison.rows, panel), CUDA if panel.gpu is None else panel.gpu.vendor))
    while len(rows) > max(3, height - 1):
        leaves = [row for row in rows if _is_leaf(row)]
        if not leaves:
            break
        rows.remove(min(leaves, key=lambda row: row.predicted or 0))
    largest = max((row.predicted or 0 for row in rows if _is_leaf(row)), default=0)
    unit, unit_name = unit_of(max((row.predicted or row.observed or 0 for row in rows), default=0))
    first = "analytic" if [title for title, _ in more] == ["dry run"] else "predicted"
    start = " " + fit(f"in {unit_name}", name_width + bar_width)
    if panel.is_rough:
        start, first = start[:-1], f"{QUICK}{first}"
    figures_of = start + right(first, SIDE + panel.is_rough) + right("observed", SIDE) + right("Δ", DELTA)
    titles: list[Piece] = [(figures_of, palette.dim)]
    titles += [(right(title, SIDE), palette.ink("accent") if title == "what if" else palette.dim) for title, _ in more]
    lines = [strip(titles, width, palette.text)]
    for row in rows:
        total = row.line in TOTALS
        style = palette.strong if total else palette.text
        bar = bar_of(row.predicted if _is_leaf(row) else 0, largest, bar_width)
        title = f"── {row.title}" if total else "└ together" if row.is_subtotal else row.title
        pieces: list[Piece] = [
            (" " + fit(title, name_width), style),
            (fit(bar, bar_width), palette.ink(colour_of(row.line))),
            (right(format_column(row.predicted, unit), SIDE), style),
        ]
        observed = "" if row.is_part else format_column(row.observed, unit)
        pieces.append((right(observed, SIDE), style if row.observed is not None else palette.dim))
        delta = "" if row.fraction is None else delta_text(row.fraction)
        pieces.append(
            (right(delta, DELTA), palette.dim if row.fraction is None else palette.ink(delta_colour(row.fraction)))
        )
        for title, estimate in more:
            ink = palette.ink("accent", bold=total) if title == "what if" else style
            size = "" if row.is_subtotal else format_column(estimate.ledger.bytes_of(row.line), unit)
            pieces.append((right(size, SIDE), ink))
        lines.append(strip(pieces, width, palette.text))
    return lines


def _with_variant(rows: Sequence[ComparisonRow], panel: Panel) -> tuple[ComparisonRow, ...]:
    """Return the lines, with those that only the variant has."""
    known = {row.line: row for row in rows}
    for line in LINES if panel.matched is not None else ():
        if line not in known and panel.estimate is not None and panel.estimate.ledger.bytes_of(line):
            predicted = None if panel.matched is None else panel.matched.ledger.bytes_of(line)
            known[line] = ComparisonRow(line=line, predicted=predicted, observed=None, difference=None, fraction=None)
    return tuple(known[line] for line in LINES if line in known)


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
