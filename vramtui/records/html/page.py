"""The page: the host, its GPUs to the byte, its processes, and every prediction beside what was observed."""

from collections.abc import Iterable, Iterator

from vramtui.core.comparison import Comparison, Row
from vramtui.core.estimate import PHASE_TITLES, Estimate, Moment
from vramtui.core.ledger import CATEGORIES, TITLES, TOTALS, Line
from vramtui.core.readings import Gpu
from vramtui.core.snapshot import Holding, Snapshot
from vramtui.core.units import UNKNOWN, format_bytes, format_gib, format_percent
from vramtui.records.cleaning import iso_time
from vramtui.records.html.drawings import Bar, Piece, over_time, stacked
from vramtui.records.html.style import style
from vramtui.records.html.text import table, tag, text

OUTSIDE: tuple[Line, ...] = ("cached", "context", "other")


def html_page(snapshot: Snapshot) -> str:
    """One whole document."""
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
        *(tag("section", *_predicted(holding)) for holding in snapshot.holdings if holding.comparison),
        *_list("Problems", (f"{p.where}: {p.message} {p.hint}" for p in sample.problems)),
        *_list("Versions", (f"{name} {known}" for name, known in snapshot.versions.items())),
    ]
    head = (
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", title),
        tag("style", style()),
    )
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def _host(snapshot: Snapshot) -> str:
    host = snapshot.sample.host
    known = (
        f"driver {host.driver_version}" if host.driver_version else "",
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
    yield _legend(
        (("processes", "used"), ("unattributed", "other"), ("driver and firmware", "driver"), ("free", "free"))
    )
    headings = ("GPU", "Name", "Processes", "Unattributed", "Driver", "Free", "Total", "State")
    yield table(headings, map(_gpu_row, gpus), numbers=range(2, 7))


def _gpu_bar(gpu: Gpu) -> Bar:
    memory = gpu.memory
    if memory.total is None or memory.used is None:
        return Bar(f"GPU {gpu.index}", (), gpu.state if gpu.state != "ok" else "memory not known")
    pieces = (
        Piece("processes", "used", min(gpu.attributed, memory.used)),
        Piece("unattributed", "other", max(0, gpu.unattributed or 0)),
        Piece("driver and firmware", "driver", memory.reserved or 0),
        Piece("free", "free", memory.free or 0),
    )
    return Bar(f"GPU {gpu.index}", pieces, f"{format_gib(memory.used)}/{format_gib(memory.total)} GiB")


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    memory = gpu.memory
    in_processes = gpu.attributed if memory.used is not None else None
    sizes = (in_processes, gpu.unattributed, memory.reserved, memory.free, memory.total)
    state = gpu.state if gpu.state == "ok" else f"{gpu.state}: {gpu.reason}"
    return (str(gpu.index), text(gpu.name), *map(_count, sizes), text(state))


def _processes(snapshot: Snapshot) -> str:
    if not snapshot.holdings:
        return tag("p", "None on these GPUs.")
    headings = ("GPU", "PID", "User", "Now", "Peak", "Predicted", "Δ", "Preset", "Command")
    return table(headings, map(_process_row, snapshot.holdings), numbers=(1, 3, 4, 5, 6))


def _process_row(holding: Holding) -> tuple[str, ...]:
    process, comparison = holding.process, holding.comparison
    return (
        str(holding.gpu_index),
        str(process.pid),
        text(process.user),
        "N/A" if process.used_memory is None else format_bytes(process.used_memory),
        format_bytes(holding.peak.bytes if holding.peak else None),
        format_bytes(comparison.predicted if comparison else None),
        format_percent(comparison.fraction if comparison else None),
        text(holding.preset),
        tag("code", text(process.command or process.name)),
    )


def _predicted(holding: Holding) -> Iterator[str]:
    comparison, estimate = holding.comparison, holding.estimate
    if comparison is None or estimate is None:
        return
    yield tag("h2", f"Pid {holding.process.pid} against {text(holding.preset)}")
    mood = {"over": "over", "as predicted": "good"}.get(comparison.verdict)
    yield tag("p", f"{text(comparison.sentence)}. By {text(comparison.method)}.", class_=mood)
    yield _sides(comparison, estimate)
    yield _legend(_categories(estimate))
    yield table(("Part", "Predicted", "Observed", "Δ (bytes)", "Δ"), map(_ledger_row, comparison.rows), range(1, 5))
    if len(holding.times) > 1:
        yield tag("h3", "Memory over time")
        yield over_time(holding.times, holding.values, estimate.process)
    if estimate.timeline:
        yield tag("h3", "Phase by phase, as predicted")
        yield _timeline(estimate)
    yield from _list(
        "How it is counted", (f"{part.name}: {part.formula} ({part.source})" for part in estimate.parts), 3
    )
    yield from _list("Assumed", estimate.assumptions, 3)


def _sides(comparison: Comparison, estimate: Estimate) -> str:
    lines: tuple[Line, ...] = (*CATEGORIES, *OUTSIDE)
    pieces = tuple(
        Piece(TITLES[line], _colour(line), size) for line in lines if (size := estimate.ledger.bytes_of(line))
    )
    observed = (Piece("observed", "used", comparison.peak),) if comparison.peak else ()
    bars = (
        Bar("predicted", pieces, format_bytes(comparison.predicted)),
        Bar("observed", observed, format_bytes(comparison.peak)),
    )
    return stacked(bars, max(comparison.predicted, comparison.peak or 0), comparison.predicted)


def _timeline(estimate: Estimate) -> str:
    bars = [
        Bar(
            _phase(moment),
            tuple(
                Piece(TITLES[line], _colour(line), moment.categories[line])
                for line in CATEGORIES
                if moment.categories.get(line)
            )
            or (Piece("allocated", "used", moment.allocated),),
            f"{format_bytes(moment.allocated)}, peak {format_bytes(moment.peak_allocated)}",
        )
        for moment in estimate.timeline
    ]
    return stacked(bars, max(moment.allocated for moment in estimate.timeline))


def _phase(moment: Moment) -> str:
    title = PHASE_TITLES[moment.phase]
    return title if moment.phase == "build" or moment.step < 0 else f"{title} {moment.step + 1}"


def _categories(estimate: Estimate) -> list[tuple[str, str]]:
    lines: tuple[Line, ...] = (*CATEGORIES, *OUTSIDE)
    return [(TITLES[line], _colour(line)) for line in lines if estimate.ledger.bytes_of(line)]


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    return tag("p", *(tag("span", class_=f"key c-{colour}") + text(title) for title, colour in entries), class_="dim")


def _ledger_row(row: Row) -> tuple[str, ...]:
    title = text(TITLES[row.line])
    return (
        tag("strong", title) if row.line in TOTALS else title,
        format_bytes(row.predicted, 2),
        format_bytes(row.observed, 2),
        _count(row.difference),
        format_percent(row.fraction),
    )


def _list(title: str, entries: Iterable[str], level: int = 2) -> list[str]:
    told = [tag("li", text(entry)) for entry in entries]
    return [tag(f"h{level}", title), tag("ul", *told)] if told else []


def _colour(line: Line) -> str:
    return line.replace("_", "-")


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}".replace("-", "−")
