"""A snapshot as one web page without network or script: the host, its GPUs to the byte, its processes, and predicted
next to observed memory. A past run's page uses the same bars, graphs and tables.

Shapes are SVG stretched to the room there is; words and figures are text of the page, readable on a phone and on paper.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec

from vramtui.core.base import units
from vramtui.core.base.colours import DARK, LIGHT
from vramtui.core.base.text import printable
from vramtui.core.estimate import estimate as estimates
from vramtui.core.estimate.fits import ComparisonRow, shown_rows
from vramtui.core.observation.readings import Gpu
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.plain import count, iso_time

_LIGHT = "--ink:#1c2430;--paper:#fff;--dim:#5d6878;--rule:#dde3ea;--bad:#c62828;--good:#1b7f3b;"
_DARK = "--ink:#d7deea;--paper:#0f131a;--dim:#93a0b3;--rule:#2a3342;--bad:#ff6f6f;--good:#63d78b;"
OUTSIDE: tuple[estimates.Line, ...] = ("cached", "context", "other")
LINES: tuple[estimates.Line, ...] = (*estimates.CATEGORIES, *OUTSIDE)
REACHED = "more at the phase's peak"
WIDTH, HEIGHT = 1000.0, 100.0


def text(value: str | None) -> str:
    """Untrusted text as text; a dash for what is not known."""
    return escape(printable(value)) if value else units.UNKNOWN


def tag(name: str, *inner: str, **attributes: str | float | None) -> str:
    """An element. `inner` is HTML already; attributes are escaped here, and `class_` is `class`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{''.join(inner)}</{name}>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table whose cells are HTML already. On a narrow page each row is a block of its own, with a line for each cell
    behind its column's name, so that nothing is cut.
    """

    def row(kind: str, cells: Sequence[str], names: Sequence[str | None]) -> str:
        pairs = enumerate(zip(cells, names, strict=True))
        return tag(
            "tr",
            *(tag(kind, cell, class_="n" if at in numbers else None, data_name=name) for at, (cell, name) in pairs),
        )

    body = "".join(row("td", cells, headings) for cells in rows)
    inner = tag("table", tag("thead", row("th", headings, [None] * len(headings))), tag("tbody", body))
    return tag("div", inner, class_="wide")


class BarPiece(msgspec.Struct, frozen=True):
    """One stretch of a bar: its name, the colour's name, bytes."""

    title: str
    colour: str
    bytes: int


class BarDrawing(msgspec.Struct, frozen=True):
    """A stacked bar under one label; `total` is written at its end."""

    label: str
    pieces: tuple[BarPiece, ...]
    total: str = ""


def stacked(bars: Sequence[BarDrawing], most: int, mark: int | None = None) -> str:
    """Bars one below the other on the scale from 0 to `most` bytes, with a line at `mark`."""
    drawings = []
    for bar in bars:
        drawn: list[str] = []
        x = 0.0
        for piece in bar.pieces:
            width = WIDTH * piece.bytes / most if most else 0.0
            title = tag("title", text(f"{piece.title}: {units.format_bytes(piece.bytes, 2)}"))
            kind = f"c-{piece.colour}"
            drawn.append(tag("rect", title, x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=HEIGHT, class_=kind))
            x += width
        if mark is not None and most:
            at = f"{WIDTH * min(mark, most) / most:.1f}"
            drawn.append(tag("line", x1=at, x2=at, y1=0, y2=HEIGHT, class_="mark"))
        # The bar comes last in the text, so that on a phone it is below its words.
        label, total = tag("span", text(bar.label), class_="label"), tag("span", text(bar.total), class_="total")
        drawings.append(tag("div", label, total, _svg(drawn, "track"), class_="bar"))
    return tag("div", *drawings, class_="bars")


def over_time(
    times: Sequence[float], values: Sequence[int], predicted: int | None, ends: tuple[str, str] | None = None
) -> str:
    """Memory over time as an area, each value held until the next, with the predicted peak as a line, and words at both
    ends of time: by default how long ago, and now.
    """
    most = max(*values, predicted or 0, 1)
    span = (times[-1] - times[0]) or 1.0
    corners = [(times[0], 0)]
    for seconds, size in zip(times, values, strict=True):
        corners += [(seconds, corners[-1][1]), (seconds, size)]
    corners.append((times[-1], 0))
    points = (f"{WIDTH * (at - times[0]) / span:.1f},{HEIGHT * (1 - size / most):.1f}" for at, size in corners)
    drawn = [tag("polygon", points=" ".join(points), class_="area")]
    words: list[str] = []
    if predicted:
        y = f"{HEIGHT * (1 - predicted / most):.1f}"
        drawn.append(tag("line", x1=0, x2=WIDTH, y1=y, y2=y, class_="mark"))
        words = [tag("p", f"┄ predicted peak {text(units.format_bytes(predicted))}", class_="mark")]
    scale = (tag("span", text(units.format_bytes(round(most * share)))) for share in (1.0, 0.5, 0.0))
    ends = ends or (f"{units.format_duration(times[-1] - times[0])} ago", "now")
    return tag(
        "div",
        *words,
        tag("div", *scale, class_="scale"),
        _svg(drawn, "graph"),
        tag("div", *(tag("span", text(end)) for end in ends), class_="ends"),
        class_="time",
    )


def _svg(drawn: list[str], kind: str) -> str:
    box = f"0 0 {WIDTH:.0f} {HEIGHT:.0f}"
    return tag("svg", *drawn, viewBox=box, preserveAspectRatio="none", role="img", class_=kind)


def document(title: str, body: Iterable[str]) -> str:
    """A whole document; title and body are HTML already."""
    fills = "".join(f".c-{name} {{ fill: var(--c-{name}); background: var(--c-{name}); }}\n" for name in LIGHT)
    light, dark = (
        own + "".join(f"--c-{name}:{colour};" for name, colour in colours.items())
        for own, colours in ((_LIGHT, LIGHT), (_DARK, DARK))
    )
    screen = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    rules = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", title),
        tag("style", f":root {{ color-scheme: light dark; {light} }}\n{screen}\n{fills}\n{rules}"),
    )
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def sides(
    predicted: estimates.Ledger, rows: Iterable[ComparisonRow], observed: int | None, vendor: str = estimates.CUDA
) -> str:
    """The predicted parts as one bar and the peak of the `observed` process as another, on one scale. If the rows add
    up to the process, its bar shows the parts.
    """
    known = ((line, predicted.bytes_of(line)) for line in LINES)
    pieces = tuple(BarPiece(estimates.title_of(line, vendor), colour(line), size) for line, size in known if size)
    sizes = ((row.line, row.observed or 0) for row in rows if row.line in LINES)
    seen = tuple(BarPiece(estimates.title_of(line, vendor), colour(line), size) for line, size in sizes)
    if sum(piece.bytes for piece in seen) != observed:
        seen = (BarPiece("observed", "used", observed),) if observed else ()
    bars = (
        BarDrawing("predicted", pieces, units.format_bytes(predicted.process)),
        BarDrawing("observed", tuple(piece for piece in seen if piece.bytes), units.format_bytes(observed)),
    )
    return stacked(bars, max(predicted.process or 0, observed or 0), predicted.process or 0)


def timeline(estimate: estimates.Estimate) -> str:
    """A bar for the end of each phase, and behind it the phase's peak."""
    bars = []
    shown: set[estimates.Line] = set()
    for moment in estimate.timeline:
        known = [(line, size) for line in estimates.CATEGORIES if (size := moment.categories.get(line))]
        shown |= {line for line, _ in known}
        pieces = [BarPiece(estimates.TITLES[line], colour(line), size) for line, size in known]
        pieces = pieces or [BarPiece("allocated", "used", moment.allocated)]
        if (moment.peak_allocated or 0) > moment.allocated:
            pieces.append(BarPiece(REACHED, "peak", (moment.peak_allocated or 0) - moment.allocated))
        total = f"{units.format_bytes(moment.allocated)}, peak {units.format_bytes(moment.peak_allocated)}"
        step = "" if moment.phase == "build" or moment.step < 0 else f" {moment.step + 1}"
        bars.append(BarDrawing(f"{estimates.PHASE_TITLES[moment.phase]}{step}", tuple(pieces), total))
    most = max(max(moment.allocated, moment.peak_allocated or 0) for moment in estimate.timeline)
    keys = [(estimates.TITLES[line], colour(line)) for line in estimates.CATEGORIES if line in shown]
    return stacked(bars, most) + legend([*keys, (REACHED, "peak")])


def categories(predicted: estimates.Ledger, vendor: str = estimates.CUDA) -> list[tuple[str, str]]:
    """Titles, in the words of the GPU's vendor, and colours of the known parts."""
    return [(estimates.title_of(line, vendor), colour(line)) for line in LINES if predicted.bytes_of(line)]


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """A title for each colour."""
    keys = (tag("span", tag("i", class_=f"key c-{ink}"), f" {text(title)}") for title, ink in entries)
    return tag("p", *keys, class_="dim keys")


def two_sides(rows: Iterable[ComparisonRow], vendor: str = estimates.CUDA) -> str:
    """The lines of the tree on both sides, all in one unit; each figure's title has the exact bytes."""
    shown = shown_rows(rows, vendor)
    unit, name = units.unit_of(max((row.predicted or row.observed or 0 for row in shown), default=0))
    cells = []
    for row in shown:
        title = text(f"= {row.title}" if row.is_subtotal else row.title)
        seen = (size(row.observed, unit), size(row.difference, unit), units.format_percent(row.fraction))
        cells.append(
            (
                tag("strong", title) if row.line in estimates.TOTALS else title,
                size(row.predicted, unit),
                *(("", "", "") if row.is_part else seen),
            )
        )
    return table(("Part", f"Predicted ({name})", f"Observed ({name})", f"Δ ({name})", "Δ"), cells, range(1, 5))


def size(value: int | None, unit: int) -> str:
    """A byte count as a number of `unit`, with the exact bytes as its title."""
    if value is None:
        return units.UNKNOWN
    sign = "−" if value < 0 else ""
    return tag("span", f"{sign}{text(units.format_column(abs(value), unit))}", title=f"{count(value)} B")


def bullet_list(title: str, entries: Iterable[str], level: int = 2) -> list[str]:
    """A heading and a list, or nothing without entries."""
    items = [tag("li", text(entry)) for entry in entries]
    return [tag(f"h{level}", title), tag("ul", *items)] if items else []


def colour(line: estimates.Line) -> str:
    return line.replace("_", "-")


def html_page(snapshot: Snapshot, picture: str = "") -> str:
    """The page of a snapshot; `picture` is the screen as SVG, or empty."""
    sample, host = snapshot.sample, snapshot.sample.host
    title = f"GPU memory on {text(host.name)}"
    drivers = (
        f"Driver {host.driver_version}" if host.driver_version else "",
        f"CUDA {host.cuda_version}" if host.cuda_version else "",
    )
    taken = f"Taken {text(iso_time(sample.taken_at))} from {text(sample.source)}."
    processes = tag("p", "None on these GPUs.")
    if snapshot.holdings:
        headings = ("GPU", "PID", "User", "Now (GiB)", "Peak (GiB)", "Predicted (GiB)", "Δ", "Preset", "Command")
        rows = [
            (
                str(one.gpu_index),
                str(one.process.pid),
                text(one.process.user),
                "N/A" if one.process.used_memory is None else size(one.process.used_memory, units.GIB),
                size(one.peak.bytes if one.peak else None, units.GIB),
                size(one.comparison.predicted if one.comparison else None, units.GIB),
                units.format_percent(one.comparison.fraction if one.comparison else None),
                text(one.preset),
                tag("code", text(one.process.command_or_name)),
            )
            for one in snapshot.holdings
        ]
        processes = table(headings, rows, numbers=(1, 3, 4, 5, 6))
    users = [(text(user), str(number), size(used, units.GIB)) for user, number, used in snapshot.users]
    bars, bytes_table = _gpus(sample.gpus) if sample.gpus else ((tag("p", "None seen."),), "")
    body = [
        *(tag("p", tag("strong", text(sentence))) for sentence in snapshot.sentences),
        tag("h1", title),
        tag("p", f"{taken} {text(', '.join(filter(None, drivers)))}", class_="dim"),
        tag("h2", "Processes"),
        processes,
        *((table(("User", "Processes", "Now (GiB)"), users, numbers=(1, 2)),) if users else ()),
        *(
            tag("section", *_predicted(holding, snapshot.vendor_of(holding)))
            for holding in snapshot.holdings
            if holding.comparison
        ),
        tag("h2", "GPUs"),
        *bars,
        *bullet_list("Problems", (f"{p.where}: {p.message} {p.hint}" for p in sample.problems)),
        *bullet_list("Versions", (f"{name} {known}" for name, known in snapshot.versions.items())),
        *((tag("h2", "Screen"), picture) if picture else ()),
        *((tag("details", tag("summary", "Every byte"), bytes_table),) if bytes_table else ()),
    ]
    return document(title, body)


def _gpus(gpus: Sequence[Gpu]) -> tuple[tuple[str, str], str]:
    """Their bars and legend, and the table of their bytes."""
    bars, rows = [], []
    for gpu in gpus:
        memory = gpu.memory
        label, in_processes = f"GPU {gpu.index}", None if memory.used is None else gpu.attributed
        if memory.total is None or memory.used is None:
            bars.append(BarDrawing(label, (), gpu.state if gpu.state != "ok" else "memory not known"))
        else:
            pieces = (
                BarPiece("processes", "used", min(gpu.attributed, memory.used)),
                BarPiece("unattributed", "other", max(0, gpu.unattributed or 0)),
                BarPiece("driver and firmware", "driver", memory.reserved or 0),
                BarPiece("free", "free", memory.free or 0),
            )
            bars.append(
                BarDrawing(label, pieces, f"{units.format_gib(memory.used)}/{units.format_gib(memory.total)} GiB")
            )
        sizes = (in_processes, gpu.unattributed, memory.reserved, memory.free, memory.total)
        state = gpu.state if gpu.state == "ok" else f"{gpu.state}: {gpu.reason}"
        rows.append((str(gpu.index), text(gpu.name), *(size(one, units.GIB) for one in sizes), text(state)))
    kinds = (("processes", "used"), ("unattributed", "other"), ("driver and firmware", "driver"), ("free", "free"))
    headings = (f"{name} (GiB)" for name in ("Processes", "Unattributed", "Driver", "Free", "Total"))
    figures = table(("GPU", "Name", *headings, "State"), rows, numbers=range(2, 7))
    return (stacked(bars, max(gpu.memory.total or 0 for gpu in gpus)), legend(kinds)), figures


def _predicted(holding: Holding, vendor: str) -> Iterator[str]:
    comparison, estimate = holding.comparison, holding.estimate
    if comparison is None or estimate is None:
        return
    yield tag("h2", f"Pid {holding.process.pid} against {text(holding.preset)}")
    mood = {"over": "over", "as predicted": "good"}.get(comparison.verdict)
    yield tag("p", f"{text(comparison.sentence)}. By {text(comparison.method)}.", class_=mood)
    if holding.settings:
        yield tag("p", "Settings: ", tag("code", text(holding.settings)))
    yield from (tag("p", text(sentence)) for sentence in holding.outlook)
    yield sides(estimate.ledger, comparison.rows, comparison.peak, vendor)
    yield legend(categories(estimate.ledger, vendor))
    yield two_sides(comparison.rows, vendor)
    if holding.times and holding.times[-1] > holding.times[0]:
        yield tag("h3", "Memory over time")
        yield over_time(holding.times, holding.values, estimate.process)
    if estimate.timeline:
        yield tag("h3", "Phase by phase, as predicted")
        yield timeline(estimate)
    parts = (f"{part.name}: {part.formula} ({part.source})" for part in estimate.parts)
    yield from bullet_list("How it is counted", parts, 3)
    yield from bullet_list("Assumed", estimate.assumptions, 3)
