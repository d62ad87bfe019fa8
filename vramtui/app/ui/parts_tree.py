"""The tree of parts: one line each, every method's figure beside the observed one."""

from rich.style import Style
from textual.strip import Strip

from vramtui.app.state.view import Panel
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import delta_colour, delta_text
from vramtui.app.ui.lines import Piece, fit, right, strip
from vramtui.core.base.units import GIB, MIB, QUICK, UNKNOWN, format_column, format_gib, format_short, unit_of
from vramtui.core.estimate.comparison import Comparison, ComparisonRow, ShownRow, shown_rows
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.ledger import CUDA, LEAVES, LINES, TOTALS

# The longest title, "other libraries", and a space before its bar.
NAME, SIDE, DELTA = 16, 9, 8
EIGHTHS = " ▏▎▍▌▋▊▉█"
LEAST_NAME = 11
Columns = tuple[tuple[str, Estimate], ...]


def tree(panel: Panel, comparison: Comparison, palette: Palette, width: int, height: int) -> list[Strip]:
    """A heading and the lines that fit. What is tried out, and a trace, have columns of their own beside the
    prediction's, the trace only where there is room; Δ is always between what was predicted and what is observed.
    """
    more = _columns(panel, width)
    vendor = CUDA if panel.gpu is None else panel.gpu.vendor
    rows = _fitting(shown_rows(_with_lines_of(comparison.rows, panel), vendor), height - 1)
    largest = max((row.predicted or 0 for row in rows if _is_leaf(row)), default=0)
    unit, name = unit_of(max((row.predicted or row.observed or 0 for row in rows), default=0))
    lines = [_row(row, largest, unit, more, palette, width) for row in rows]
    return [_titles_line(name, more, palette, width, is_rough=panel.is_rough), *lines]


def _columns(panel: Panel, width: int) -> Columns:
    """The estimates that stand beside the prediction, with their titles."""
    more: list[tuple[str, Estimate]] = []
    if panel.matched is not None and panel.estimate is not None:
        more.append(("what if", panel.estimate))
    if panel.traced is not None and panel.traced is not panel.estimate:
        more.append(("traced", panel.traced))
    room = (width - 1 - LEAST_NAME - DELTA) // SIDE - 2
    return tuple(more[: max(1, room)])


def _with_lines_of(rows: tuple[ComparisonRow, ...], panel: Panel) -> tuple[ComparisonRow, ...]:
    """The lines, with those that only what is tried out has."""
    if panel.matched is None or panel.estimate is None:
        return rows
    known = {row.line: row for row in rows}
    for line in LINES:
        if line not in known and panel.estimate.ledger.bytes_of(line):
            predicted = panel.matched.ledger.bytes_of(line)
            known[line] = ComparisonRow(line=line, predicted=predicted, observed=None, difference=None, fraction=None)
    return tuple(known[line] for line in LINES if line in known)


def _bar_width(more: Columns, width: int) -> int:
    taken = NAME + (2 + len(more)) * SIDE + DELTA + 2
    return max(0, min(24, width - taken))


def _name_width(more: Columns, width: int) -> int:
    """Names give way to more columns of figures where there is little room."""
    return NAME if not more else max(LEAST_NAME, min(NAME, width - 1 - (2 + len(more)) * SIDE - DELTA))


def _titles_line(unit: str, more: Columns, palette: Palette, width: int, *, is_rough: bool) -> Strip:
    first = "analytic" if [title for title, _ in more] == ["traced"] else "predicted"
    start = " " + fit(f"in {unit}", _name_width(more, width) + _bar_width(more, width))
    if is_rough:
        start, first = start[:-1], f"{QUICK}{first}"
    pieces: list[Piece] = [(start + right(first, SIDE + is_rough), palette.dim)]
    pieces += [(right(title, SIDE), palette.ink("accent") if title == "what if" else palette.dim) for title, _ in more]
    return strip([*pieces, (right("observed", SIDE) + right("Δ", DELTA), palette.dim)], width, palette.text)


def _is_leaf(row: ShownRow) -> bool:
    return row.line not in TOTALS and not row.is_subtotal


def title_of(row: ShownRow) -> str:
    """A line's name in a narrow table."""
    return "└ together" if row.is_subtotal else row.title


def _fitting(rows: tuple[ShownRow, ...], height: int) -> list[ShownRow]:
    """The rows, without the smallest parts where there are too many lines; totals are never left out."""
    fitting = list(rows)
    while len(fitting) > max(3, height):
        parts = [row for row in fitting if _is_leaf(row)]
        if not parts:
            break
        fitting.remove(min(parts, key=lambda row: row.predicted or 0))
    return fitting


def _row(row: ShownRow, largest: int, unit: int, more: Columns, palette: Palette, width: int) -> Strip:
    total = row.line in TOTALS
    bar = _bar_width(more, width)
    name = f"── {row.title}" if total else title_of(row)
    style = palette.strong if total else palette.text
    filled = "" if not _is_leaf(row) else _mini_bar(row.predicted or 0, largest, bar)
    pieces: list[Piece] = [
        (" " + fit(name, _name_width(more, width)), style),
        (fit(filled, bar), palette.ink(row.line.replace("_", "-"))),
        (right(format_column(row.predicted, unit), SIDE), style),
    ]
    for title, estimate in more:
        ink = palette.ink("accent", bold=total) if title == "what if" else style
        size = "" if row.is_subtotal else format_column(estimate.ledger.bytes_of(row.line), unit)
        pieces.append((right(size, SIDE), ink))
    observed = "" if row.is_part else format_column(row.observed, unit)
    pieces.append((right(observed, SIDE), style if row.observed is not None else palette.dim))
    pieces.append(_delta(row.fraction, palette))
    return strip(pieces, width, palette.text)


def _delta(fraction: float | None, palette: Palette) -> Piece:
    style: Style = palette.dim if fraction is None else palette.ink(delta_colour(fraction))
    return (right(delta_text(fraction) if fraction is not None else "", DELTA), style)


def size_of(count: int | None) -> str:
    """GiB from a tenth of one upwards, smaller units below, so that a small part is not shown as nothing."""
    if count is None:
        return UNKNOWN
    if count >= GIB // 10 or count == 0:
        return f"{format_gib(count)} GiB"
    return f"{count / MIB:.1f} MiB" if count >= MIB else format_short(count)


def _mini_bar(count: int, largest: int, width: int) -> str:
    if not largest or not width or not count:
        return ""
    eighths = max(1, round(count * width * 8 / largest))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (EIGHTHS[rest] if rest else "")


def same_parts(rule: Estimate, estimate: Estimate) -> int:
    """Bytes that `estimate` has for the parts that a rule counts; all of them where the rule names no parts."""
    counted = [line for line in LEAVES if rule.ledger.bytes_of(line) is not None]
    return sum(estimate.ledger.bytes_of(line) or 0 for line in counted or LEAVES)
