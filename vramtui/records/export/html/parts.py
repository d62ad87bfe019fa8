"""What a page about a snapshot and one about a past run share: its looks (light and dark as the reader's system has it,
plain on paper), bars, tables and lists of a prediction.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from vramtui.core.base.colours import DARK, LIGHT
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_percent, unit_of
from vramtui.core.estimate.comparison import ComparisonRow, ShownRow, shown_rows
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate, Moment
from vramtui.core.estimate.ledger import CATEGORIES, CUDA, TITLES, TOTALS, Ledger, Line, title_of
from vramtui.records.export.html.drawings import BarDrawing, BarPiece, stacked
from vramtui.records.export.sanitize import table, tag, text

_LIGHT = "--ink:#1c2430;--paper:#fff;--dim:#5d6878;--rule:#dde3ea;--bad:#c62828;--good:#1b7f3b;"
_DARK = "--ink:#d7deea;--paper:#0f131a;--dim:#93a0b3;--rule:#2a3342;--bad:#ff6f6f;--good:#63d78b;"
OUTSIDE: tuple[Line, ...] = ("cached", "context", "other")
LINES: tuple[Line, ...] = (*CATEGORIES, *OUTSIDE)
REACHED = "more at the phase's peak"


def style() -> str:
    fills = "".join(f".c-{name} {{ fill: var(--c-{name}); background: var(--c-{name}); }}\n" for name in LIGHT)
    light, dark = f"{_LIGHT}{_variables(LIGHT)}", f"{_DARK}{_variables(DARK)}"
    screen = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    rules = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return f":root {{ color-scheme: light dark; {light} }}\n{screen}\n{fills}\n{rules}"


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--c-{name}:{colour};" for name, colour in colours.items())


def document(title: str, body: Iterable[str]) -> str:
    """One whole document; title and body are HTML already."""
    head = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", title),
        tag("style", style()),
    )
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def sides(predicted: Ledger, rows: Iterable[ComparisonRow], observed: int | None, vendor: str = CUDA) -> str:
    """The predicted parts as one bar, the observed process as another, on one scale in bytes.

    Args:
        predicted: what was predicted.
        rows: both sides line by line; where they tell what the observed process consists of, its bar shows that.
        observed: the most the process was seen to hold.
        vendor: of the card, in whose words parts are named.
    """
    known = ((line, predicted.bytes_of(line)) for line in LINES)
    pieces = tuple(BarPiece(title_of(line, vendor), colour(line), size) for line, size in known if size)
    told = ((row.line, row.observed or 0) for row in rows if row.line in LINES)
    seen = tuple(BarPiece(title_of(line, vendor), colour(line), size) for line, size in told)
    if sum(piece.bytes for piece in seen) != observed:
        seen = (BarPiece("observed", "used", observed),) if observed else ()
    bars = (
        BarDrawing("predicted", pieces, format_bytes(predicted.process)),
        BarDrawing("observed", tuple(piece for piece in seen if piece.bytes), format_bytes(observed)),
    )
    return stacked(bars, max(predicted.process or 0, observed or 0), predicted.process or 0)


def timeline(estimate: Estimate) -> str:
    """A bar for the end of each phase, and behind it how far the phase reached."""
    bars = [
        BarDrawing(
            phase_title(moment),
            tuple(_bar_pieces(moment)),
            f"{format_bytes(moment.allocated)}, peak {format_bytes(moment.peak_allocated)}",
        )
        for moment in estimate.timeline
    ]
    most = max(max(moment.allocated, moment.peak_allocated or 0) for moment in estimate.timeline)
    shown = {line for moment in estimate.timeline for line in CATEGORIES if moment.categories.get(line)}
    keys = [(TITLES[line], colour(line)) for line in CATEGORIES if line in shown]
    return stacked(bars, most) + legend([*keys, (REACHED, "peak")])


def _bar_pieces(moment: Moment) -> Iterator[BarPiece]:
    known = [(line, size) for line in CATEGORIES if (size := moment.categories.get(line))]
    yield from (BarPiece(TITLES[line], colour(line), size) for line, size in known)
    if not known:
        yield BarPiece("allocated", "used", moment.allocated)
    reached = (moment.peak_allocated or 0) - moment.allocated
    if reached > 0:
        yield BarPiece(REACHED, "peak", reached)


def phase_title(moment: Moment) -> str:
    """Which phase of which step, counted from 1."""
    title = PHASE_TITLES[moment.phase]
    return title if moment.phase == "build" or moment.step < 0 else f"{title} {moment.step + 1}"


def categories(predicted: Ledger, vendor: str = CUDA) -> list[tuple[str, str]]:
    """Titles, in the words of the card's vendor, and colours of the parts that there are."""
    return [(title_of(line, vendor), colour(line)) for line in LINES if predicted.bytes_of(line)]


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """What each colour is."""
    keys = (tag("span", tag("i", class_=f"key c-{ink}"), f" {text(title)}") for title, ink in entries)
    return tag("p", *keys, class_="dim keys")


def two_sides(rows: Iterable[ComparisonRow], vendor: str = CUDA) -> str:
    """The lines of the tree on both sides, all in one unit and in the words of the card's vendor; the exact bytes are
    each figure's title.
    """
    shown = shown_rows(rows, vendor)
    unit, name = unit_of(max((row.predicted or row.observed or 0 for row in shown), default=0))
    headings = ("Part", f"Predicted ({name})", f"Observed ({name})", f"Δ ({name})", "Δ")
    return table(headings, _ledger_rows(shown, unit), range(1, 5))


def size(value: int | None, unit: int) -> str:
    """A byte count as a number of `unit`, with the exact bytes as its title."""
    if value is None:
        return UNKNOWN
    sign = "−" if value < 0 else ""
    return tag("span", f"{sign}{text(format_column(abs(value), unit))}", title=f"{count(value)} B")


def _ledger_rows(shown: Iterable[ShownRow], unit: int) -> Iterator[tuple[str, ...]]:
    for row in shown:
        title = text(f"= {row.title}" if row.is_subtotal else row.title)
        yield (
            tag("strong", title) if row.line in TOTALS else title,
            size(row.predicted, unit),
            "" if row.is_part else size(row.observed, unit),
            "" if row.is_part else size(row.difference, unit),
            "" if row.is_part else format_percent(row.fraction),
        )


def bullet_list(title: str, entries: Iterable[str], level: int = 2) -> list[str]:
    """A heading and a list; nothing where there are no entries."""
    told = [tag("li", text(entry)) for entry in entries]
    return [tag(f"h{level}", title), tag("ul", *told)] if told else []


def colour(line: Line) -> str:
    """The name of a line's colour."""
    return line.replace("_", "-")


def count(value: int | None) -> str:
    """A whole number with its thousands apart and a true minus sign."""
    return UNKNOWN if value is None else f"{value:,}".replace("-", "−")
