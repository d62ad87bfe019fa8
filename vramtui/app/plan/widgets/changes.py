"""The lines of the changes that free memory: what each frees, what is held then, whether that fits, and its price."""

from rich.style import Style
from textual.strip import Strip

from vramtui.app.plan.view import PlanView
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece, fit, right, strip, wrap
from vramtui.core.base.units import GIB, format_column, format_gib
from vramtui.estimators.planner.planner import Effect

NAMES, SIZE, COST = (14, 46), 11, 24
# Names give way to their prices down to so many columns.
NAMED = 30
Row = tuple[Strip, int | None]


def change_lines(plan: PlanView, palette: Palette, width: int, height: int, *, chosen: bool) -> list[Row]:
    """At most `height` lines, each with the place of its change; with `chosen` one is marked, and what its line has no
    room for is shown below.
    """
    changes = plan.advice.changes
    if height < 1 or not changes:
        return []
    names, costs = _columns(changes, width)
    heading: list[Row] = [(_heading(changes, palette, width, names, costs), None)] if chosen or height > 2 else []
    at = plan.change if chosen else -1
    told = _full_cost(changes[plan.change], palette, width, names, costs) if chosen else []
    told = told[: max(0, height - len(heading) - 1)]
    room = height - len(heading) - len(told)
    first = max(0, min(at - room // 2, len(changes) - room)) if chosen else 0
    rows: list[Row] = [
        (_line(change, palette, width, names, costs, chosen=number == at), number)
        for number, change in enumerate(changes[first : first + room], first)
    ]
    return [*heading, *rows, *told]


def _columns(changes: tuple[Effect, ...], width: int) -> tuple[int, int]:
    """Columns of the names and of the prices; none of the latter where there is no room for them."""
    least, most = NAMES
    names = max(least, min(most, max(len(change.mitigation) for change in changes)))
    rest = width - 3 - 2 * SIZE - 3
    if rest - names >= COST:
        return names, rest - names
    if rest - min(names, NAMED) >= COST:
        return min(names, NAMED), rest - min(names, NAMED)
    return max(1, min(names, rest)), 0


def _heading(changes: tuple[Effect, ...], palette: Palette, width: int, names: int, costs: int) -> Strip:
    served = any(change.largest is not None for change in changes)
    text = (
        "   " + fit("one change", names) + right("frees", SIZE) + right("then up to" if served else "then", SIZE) + "  "
    )
    return strip([(text + ("  cost" if costs else ""), palette.dim)], width, palette.text)


def _line(change: Effect, palette: Palette, width: int, names: int, costs: int, *, chosen: bool) -> Strip:
    ink = palette.text + Style(reverse=True) if chosen else None
    style = ink or palette.text
    fits = ink or palette.ink("success" if change.fits else "error")
    then = f"{change.largest:,}" if change.largest is not None else f"{format_gib(change.process)} GiB"
    pieces: list[Piece] = [
        (" › " if chosen else "   ", ink or palette.ink("primary")),
        (fit(change.mitigation, names), ink or palette.text),
        (right(f"−{_freed(change.frees)} GiB" if change.frees > 0 else "–", SIZE), ink or palette.strong),
        (right(then, SIZE), style),
        (" ✓" if change.fits else " ✗", fits),
    ]
    if costs:
        pieces.append(("  " + fit(change.cost, costs - 1), ink or palette.dim))
    return strip(pieces, width, style)


def _freed(count: int) -> str:
    """Tenths of a GiB, and more of what is less than one."""
    return format_gib(count) if count >= GIB // 10 else format_column(count, GIB)


def _full_cost(change: Effect, palette: Palette, width: int, names: int, costs: int) -> list[Row]:
    """The price of the chosen one, and its name, where they are cut."""
    if len(change.cost) < costs:
        return []
    text = change.cost if len(change.mitigation) <= names else f"{change.mitigation}: {change.cost}"
    return [(strip([(f"   {line}", palette.dim)], width, palette.text), None) for line in wrap(text, width - 4)]
