"""A snapshot as one web page that needs nothing else (no network, no script; good on paper and on a telephone): the
host, its GPUs to the byte, its processes, and every prediction beside what was observed.

A past run's page has the same looks, light and dark as the reader's system has it, and the same bars and tables.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from vramtui.core.base.colours import DARK, LIGHT
from vramtui.core.base.units import GIB, UNKNOWN, format_bytes, format_column, format_gib, format_percent, unit_of
from vramtui.core.estimate.comparison import ComparisonRow, ShownRow, shown_rows
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate, Moment
from vramtui.core.estimate.ledger import CATEGORIES, CUDA, TITLES, TOTALS, Ledger, Line, title_of
from vramtui.core.observation.readings import Gpu
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.drawings import BarDrawing, BarPiece, over_time, stacked
from vramtui.records.export.sanitize import count, iso_time, table, tag, text

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
    sizes = ((row.line, row.observed or 0) for row in rows if row.line in LINES)
    seen = tuple(BarPiece(title_of(line, vendor), colour(line), size) for line, size in sizes)
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
    items = [tag("li", text(entry)) for entry in entries]
    return [tag(f"h{level}", title), tag("ul", *items)] if items else []


def colour(line: Line) -> str:
    """The name of a line's colour."""
    return line.replace("_", "-")


def html_page(snapshot: Snapshot, picture: str = "") -> str:
    """Return the page of a snapshot; `picture` is the screen as SVG, empty for none."""
    sample = snapshot.sample
    title = f"GPU memory on {text(sample.host.name)}"
    body = [
        tag("h1", title),
        tag(
            "p", f"Taken {text(iso_time(sample.taken_at))} from {text(sample.source)}. {_host(snapshot)}", class_="dim"
        ),
        tag("h2", "GPUs"),
        *_gpus(snapshot),
        tag("h2", "Processes"),
        _processes(snapshot),
        *(
            tag("section", *_predicted(holding, snapshot.vendor_of(holding)))
            for holding in snapshot.holdings
            if holding.comparison
        ),
        *bullet_list("Problems", (f"{p.where}: {p.message} {p.hint}" for p in sample.problems)),
        *bullet_list("Versions", (f"{name} {known}" for name, known in snapshot.versions.items())),
        *((tag("h2", "Screen"), picture) if picture else ()),
    ]
    return document(title, body)


def _host(snapshot: Snapshot) -> str:
    host = snapshot.sample.host
    known = (
        f"Driver {host.driver_version}" if host.driver_version else "",
        f"CUDA {host.cuda_version}" if host.cuda_version else "",
    )
    return text(", ".join(filter(None, known)))


def _gpus(snapshot: Snapshot) -> Iterator[str]:
    gpus = snapshot.sample.gpus
    if not gpus:
        yield tag("p", "None seen.")
        return
    most = max((gpu.memory.total or 0 for gpu in gpus), default=0)
    yield stacked([_gpu_bar(gpu) for gpu in gpus], most)
    yield legend(
        (("processes", "used"), ("unattributed", "other"), ("driver and firmware", "driver"), ("free", "free"))
    )
    sizes = (f"{name} (GiB)" for name in ("Processes", "Unattributed", "Driver", "Free", "Total"))
    headings = ("GPU", "Name", *sizes, "State")
    yield table(headings, map(_gpu_row, gpus), numbers=range(2, 7))


def _gpu_bar(gpu: Gpu) -> BarDrawing:
    memory = gpu.memory
    if memory.total is None or memory.used is None:
        return BarDrawing(f"GPU {gpu.index}", (), gpu.state if gpu.state != "ok" else "memory not known")
    pieces = (
        BarPiece("processes", "used", min(gpu.attributed, memory.used)),
        BarPiece("unattributed", "other", max(0, gpu.unattributed or 0)),
        BarPiece("driver and firmware", "driver", memory.reserved or 0),
        BarPiece("free", "free", memory.free or 0),
    )
    return BarDrawing(f"GPU {gpu.index}", pieces, f"{format_gib(memory.used)}/{format_gib(memory.total)} GiB")


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    memory = gpu.memory
    in_processes = gpu.attributed if memory.used is not None else None
    sizes = (in_processes, gpu.unattributed, memory.reserved, memory.free, memory.total)
    state = gpu.state if gpu.state == "ok" else f"{gpu.state}: {gpu.reason}"
    return (str(gpu.index), text(gpu.name), *(size(one, GIB) for one in sizes), text(state))


def _processes(snapshot: Snapshot) -> str:
    if not snapshot.holdings:
        return tag("p", "None on these GPUs.")
    headings = ("GPU", "PID", "User", "Now (GiB)", "Peak (GiB)", "Predicted (GiB)", "Δ", "Preset", "Command")
    return table(headings, map(_process_row, snapshot.holdings), numbers=(1, 3, 4, 5, 6))


def _process_row(holding: Holding) -> tuple[str, ...]:
    process, comparison = holding.process, holding.comparison
    return (
        str(holding.gpu_index),
        str(process.pid),
        text(process.user),
        "N/A" if process.used_memory is None else size(process.used_memory, GIB),
        size(holding.peak.bytes if holding.peak else None, GIB),
        size(comparison.predicted if comparison else None, GIB),
        format_percent(comparison.fraction if comparison else None),
        text(holding.preset),
        tag("code", text(process.command_or_name)),
    )


def _predicted(holding: Holding, vendor: str) -> Iterator[str]:
    comparison, estimate = holding.comparison, holding.estimate
    if comparison is None or estimate is None:
        return
    yield tag("h2", f"Pid {holding.process.pid} against {text(holding.preset)}")
    mood = {"over": "over", "as predicted": "good"}.get(comparison.verdict)
    yield tag("p", f"{text(comparison.sentence)}. By {text(comparison.method)}.", class_=mood)
    yield sides(estimate.ledger, comparison.rows, comparison.peak, vendor)
    yield legend(categories(estimate.ledger, vendor))
    yield two_sides(comparison.rows, vendor)
    if holding.times and holding.times[-1] > holding.times[0]:
        yield tag("h3", "Memory over time")
        yield over_time(holding.times, holding.values, estimate.process)
    if estimate.timeline:
        yield tag("h3", "Phase by phase, as predicted")
        yield timeline(estimate)
    yield from bullet_list(
        "How it is counted", (f"{part.name}: {part.formula} ({part.source})" for part in estimate.parts), 3
    )
    yield from bullet_list("Assumed", estimate.assumptions, 3)
