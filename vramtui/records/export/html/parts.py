"""What a page about a snapshot and one about a past run share: its looks (light and dark as the reader's system has it,
plain on paper), bars, tables and lists of a prediction.
"""

from collections.abc import Iterable, Iterator

from vramtui.core.base.colours import DARK, LIGHT
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_percent, unit_of
from vramtui.core.estimate.comparison import ComparisonRow, ShownRow, shown_rows
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate, Moment
from vramtui.core.estimate.ledger import CATEGORIES, CUDA, TITLES, TOTALS, Ledger, Line, title_of
from vramtui.records.export.html.drawings import BarDrawing, BarPiece, stacked
from vramtui.records.export.html.text import table, tag, text

_RULES = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.5rem; max-width: 62rem; }
body { color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p { margin: .3rem 0; } .dim { color: var(--dim); } .over { color: var(--bad); } .good { color: var(--good); }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; }
td code { display: block; min-width: 14rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; color: var(--dim); } .n { text-align: right; white-space: nowrap; }
svg { display: block; width: 100%; } line.mark { stroke: var(--c-prediction); stroke-width: 2; }
line.mark { stroke-dasharray: 5 3; vector-effect: non-scaling-stroke; } p.mark { color: var(--c-prediction); }
.bars { display: grid; grid: auto-flow dense auto / max-content 1fr max-content; gap: .35rem .8rem; margin: .6rem 0; }
.bar { display: contents; } .label { grid-column: 1; } .total { grid-column: 3; white-space: nowrap; }
.track { grid-column: 2; height: 1.4rem; } .c-peak { fill: var(--rule); background: var(--rule); }
.time { display: grid; grid-template-columns: max-content 1fr; gap: .2rem .8rem; }
.time p { grid-column: 2; text-align: right; } .graph { height: 11rem; }
.scale, .ends { display: flex; justify-content: space-between; color: var(--dim); }
.scale { flex-direction: column; text-align: right; line-height: 1; } .ends { grid-column: 2; }
.area { fill: var(--c-used); opacity: .8; }
.keys span { white-space: nowrap; margin-right: .9em; }
.key { display: inline-block; width: .8em; height: .8em; }
@media print { body { max-width: none; padding: 0; print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
@media print { .bars, .time, tr, li { break-inside: avoid; } h2, h3 { break-after: avoid; } }
@media (max-width: 40rem) { body { padding: .8rem; } .bars { grid-template-columns: 1fr max-content; row-gap: .1rem; } }
@media (max-width: 40rem) { thead { display: none; } tr { display: block; padding: .4rem 0; } }
@media (max-width: 40rem) { tr { border-bottom: 1px solid var(--rule); } td { border: 0; padding: .1rem 0; } }
@media (max-width: 40rem) { td, .n { display: flex; justify-content: space-between; gap: 1rem; white-space: normal; } }
@media (max-width: 40rem) { td { text-align: right; } }
@media (max-width: 40rem) { td::before { content: attr(data-name); color: var(--dim); text-align: left; } }
@media (max-width: 40rem) { td code { min-width: 0; } }
@media (max-width: 40rem) { .total { grid-column: 2; } .track { grid-column: 1 / -1; margin-bottom: .4rem; } }
"""
_LIGHT = "--ink:#1c2430;--paper:#fff;--dim:#5d6878;--rule:#dde3ea;--bad:#c62828;--good:#1b7f3b;"
_DARK = "--ink:#d7deea;--paper:#0f131a;--dim:#93a0b3;--rule:#2a3342;--bad:#ff6f6f;--good:#63d78b;"
OUTSIDE: tuple[Line, ...] = ("cached", "context", "other")
LINES: tuple[Line, ...] = (*CATEGORIES, *OUTSIDE)
REACHED = "more at the phase's peak"


def style() -> str:
    """The style sheet."""
    fills = "".join(f".c-{name} {{ fill: var(--c-{name}); background: var(--c-{name}); }}\n" for name in LIGHT)
    light, dark = f"{_LIGHT}{_variables(LIGHT)}", f"{_DARK}{_variables(DARK)}"
    screen = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ color-scheme: light dark; {light} }}\n{screen}\n{fills}{_RULES}"


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
            tuple(_held(moment)),
            f"{format_bytes(moment.allocated)}, peak {format_bytes(moment.peak_allocated)}",
        )
        for moment in estimate.timeline
    ]
    most = max(max(moment.allocated, moment.peak_allocated or 0) for moment in estimate.timeline)
    shown = {line for moment in estimate.timeline for line in CATEGORIES if moment.categories.get(line)}
    keys = [(TITLES[line], colour(line)) for line in CATEGORIES if line in shown]
    return stacked(bars, most) + legend([*keys, (REACHED, "peak")])


def _held(moment: Moment) -> Iterator[BarPiece]:
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


def listed(title: str, entries: Iterable[str], level: int = 2) -> list[str]:
    """A heading and a list; nothing where there are no entries."""
    told = [tag("li", text(entry)) for entry in entries]
    return [tag(f"h{level}", title), tag("ul", *told)] if told else []


def colour(line: Line) -> str:
    """The name of a line's colour."""
    return line.replace("_", "-")


def count(value: int | None) -> str:
    """A whole number with its thousands apart and a true minus sign."""
    return UNKNOWN if value is None else f"{value:,}".replace("-", "−")
