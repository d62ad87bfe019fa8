"""Snapshots as Markdown, from parts that may hold anything: process names and commands are written by whoever started
them.
"""

from collections.abc import Iterable, Iterator, Sequence

from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_gib, format_percent, unit_of
from vramtui.core.estimate.comparison import Comparison, ComparisonRow, ShownRow, shown_rows
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate
from vramtui.core.estimate.ledger import CUDA, TOTALS
from vramtui.core.observation.readings import Gpu, Host, Sample
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.sanitize import count, iso_time

_PLAIN = frozenset(" ,-/=")
_IN_PROSE = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {c: f"\\{c}" for c in "\\`*_[]|~$#@!"}


def code(text: str | None) -> str:
    """Untrusted text, shown letter by letter: no markup, HTML, link or mention in it comes alive, nor a table's bar.

    A code span holds most of it. Where the text has characters that can end a span or a table's cell, or that would
    be HTML if it were cut out of its span, it stands in a `<code>` element, every sign in it spelt as a number.
    """
    if not text:
        return UNKNOWN
    text = printable(text)
    if not text.strip():
        return f"<code>{'&nbsp;' * len(text)}</code>"
    if not set(text) & set("`|\\<>&"):
        return f"`{text}`"
    spelt = (c if c.isalnum() or c in _PLAIN or not c.isascii() else f"&#{ord(c)};" for c in text)
    return f"<code>{''.join(spelt)}</code>"


def prose(text: str) -> str:
    """A sentence that may quote something: its words stay words."""
    return "".join(_IN_PROSE.get(c, c) for c in printable(text))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> list[str]:
    """The lines of a table whose cells are Markdown already; the columns `numbers` are set to the right."""
    rules = ["---:" if column in numbers else "---" for column in range(len(headings))]
    return [_line(cells) for cells in (headings, rules, *rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown_report(snapshot: Snapshot) -> str:
    """Host, GPUs to the byte, processes, predictions beside observations, problems, versions."""
    sample = snapshot.sample
    lines = [
        f"# GPU memory on {code(sample.host.name)}",
        "",
        f"Taken {iso_time(sample.taken_at)} from {code(sample.source)}. {_host(sample.host)}",
        *_section("GPUs", _gpu_lines(sample)),
        *_section("Processes", _process_lines(snapshot)),
    ]
    for holding in snapshot.holdings:
        if holding.comparison and holding.estimate:
            compared = _comparison_lines(holding.comparison, holding.estimate, snapshot.vendor_of(holding))
            lines += _section(_heading(holding), compared, level=3)
    lines += _section("Problems", _problem_lines(sample))
    lines += _section("Versions", [f"- {prose(name)} {prose(known)}" for name, known in snapshot.versions.items()])
    return "\n".join(lines) + "\n"


def _section(title: str, body: "list[str] | Iterator[str]", level: int = 2) -> list[str]:
    lines = list(body)
    return ["", f"{'#' * level} {title}", "", *lines] if lines else []


def _host(host: Host) -> str:
    known = [
        f"Driver {prose(host.driver_version)}" if host.driver_version else "",
        f"CUDA {prose(host.cuda_version)}" if host.cuda_version else "",
        f"CPU {host.cpu_percent:.0f} %" if host.cpu_percent is not None else "",
        f"host memory {format_bytes(host.memory_available)} available of {format_bytes(host.memory_total)}"
        if host.memory_total is not None
        else "",
    ]
    return ", ".join(filter(None, known)) + ("." if any(known) else "")


def _gpu_lines(sample: Sample) -> Iterator[str]:
    if not sample.gpus:
        yield "None seen."
        return
    headings = ("GPU", "Name", "Used (GiB)", "Total (GiB)", "Utilization", "Power", "Temperature", "State")
    yield from table(headings, map(_gpu_row, sample.gpus), numbers=(2, 3, 4, 5, 6))
    yield ""
    yield "Every byte of them:"
    yield ""
    summands = ("GPU", "Processes", "+ MIG instances", "+ unattributed", "+ driver reserved", "+ free", "= total")
    yield from table(summands, map(_bytes_row, sample.gpus), numbers=range(1, 7))
    for gpu in sample.gpus:
        left_over = _left_over(gpu)
        if left_over:
            yield ""
            yield f"GPU {gpu.index}: the driver's own figures differ by {count(left_over)} bytes from its total."


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    state = gpu.state if gpu.state == "ok" else f"{gpu.state}: {prose(gpu.reason)}"
    return (
        str(gpu.index),
        code(gpu.name),
        format_gib(gpu.memory.used),
        format_gib(gpu.memory.total),
        _with_unit(gpu.utilization, "%"),
        _with_unit(gpu.power_watts, "W"),
        _with_unit(gpu.temperature_celsius, "°C"),
        state,
    )


def _bytes_row(gpu: Gpu) -> tuple[str, ...]:
    memory = gpu.memory
    known = memory.used is not None
    in_processes = gpu.attributed - (gpu.mig_used or 0) if known else None
    figures = (in_processes, gpu.mig_used, gpu.unattributed, memory.reserved, memory.free, memory.total)
    return (str(gpu.index), *map(count, figures))


def _left_over(gpu: Gpu) -> int:
    """What the driver's figures leave of its total; 0 where they add up, or where one of them is not known."""
    memory = gpu.memory
    if memory.total is None or memory.used is None or memory.free is None:
        return 0
    return memory.total - memory.used - memory.free - (memory.reserved or 0)


def _process_lines(snapshot: Snapshot) -> Iterator[str]:
    if not snapshot.holdings:
        yield "None on these GPUs."
        return
    headings = ("GPU", "PID", "Type", "User", "Now (GiB)", "Peak (GiB)", "Predicted (GiB)", "Δ", "Preset", "Command")
    yield from table(headings, map(_process_row, snapshot.holdings), numbers=(1, 4, 5, 6, 7))


def _process_row(holding: Holding) -> tuple[str, ...]:
    process, comparison = holding.process, holding.comparison
    return (
        str(holding.gpu_index),
        str(process.pid),
        process.type,
        code(process.user),
        "N/A" if process.used_memory is None else format_gib(process.used_memory, 2),
        format_gib(holding.peak.bytes if holding.peak else None, 2),
        format_gib(comparison.predicted if comparison else None, 2),
        format_percent(comparison.fraction if comparison else None),
        code(holding.preset),
        code(process.command_or_name),
    )


def _heading(holding: Holding) -> str:
    return f"Pid {holding.process.pid} on GPU {holding.gpu_index} against {code(holding.preset)}"


def _comparison_lines(comparison: Comparison, estimate: Estimate, vendor: str) -> Iterator[str]:
    yield f"By {code(comparison.method)}, peak in {PHASE_TITLES[estimate.peak_phase]}: {prose(comparison.sentence)}."
    yield ""
    yield from ledger_table(comparison.rows, vendor)
    if estimate.assumptions:
        yield ""
        yield "Assumed:"
        yield ""
        yield from (f"- {prose(sentence)}" for sentence in estimate.assumptions)


def ledger_table(rows: Iterable[ComparisonRow], vendor: str = CUDA) -> list[str]:
    """The lines of a table with both sides of a comparison, in the words of the card's vendor."""
    shown = shown_rows(rows, vendor)
    unit, name = unit_of(max((row.predicted or row.observed or 0 for row in shown), default=0))
    headings = ("Part", f"Predicted ({name})", "Predicted (bytes)", "Observed (bytes)", "Δ (bytes)", "Δ")
    return table(headings, (_ledger_row(row, unit) for row in shown), numbers=range(1, 6))


def _ledger_row(row: ShownRow, unit: int) -> tuple[str, ...]:
    return (
        f"**{row.title}**" if row.line in TOTALS else f"= {row.title}" if row.is_subtotal else row.title,
        format_column(row.predicted, unit).replace("<", "&lt;"),
        count(row.predicted),
        "" if row.is_part else count(row.observed),
        "" if row.is_part else count(row.difference),
        "" if row.is_part else format_percent(row.fraction),
    )


def _problem_lines(sample: Sample) -> Iterator[str]:
    for problem in sample.problems:
        hint = f" {prose(problem.hint)}" if problem.hint else ""
        yield f"- {code(problem.where)}: {prose(problem.message)}{hint}"


def _with_unit(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{value:.0f} {unit}"
