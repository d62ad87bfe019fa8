"""Snapshots as Markdown. Process names and commands may hold anything."""

from collections.abc import Iterable, Sequence

from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_gib, format_percent, unit_of
from vramtui.core.estimate.estimate import CUDA, PHASE_TITLES, TOTALS
from vramtui.core.estimate.fits import ComparisonRow, shown_rows
from vramtui.core.observation.snapshot import Snapshot
from vramtui.records.export.plain import count, iso_time

_PLAIN = frozenset(" ,-/=")
_IN_PROSE = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {c: f"\\{c}" for c in "\\`*_[]|~$#@!"}


def code(text: str | None) -> str:
    """Untrusted text, shown letter by letter, without markup, HTML, links or mentions.

    It is a code span. If it has characters that can end a span or a table's cell, or that would be HTML outside of the
    span, it is a `<code>` element, with every sign spelt as a number.
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
    """A sentence that may quote something, without markup."""
    return "".join(_IN_PROSE.get(c, c) for c in printable(text))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> list[str]:
    """The lines of a table whose cells are Markdown already; the columns `numbers` are set to the right."""
    rules = ["---:" if column in numbers else "---" for column in range(len(headings))]
    return [f"| {' | '.join(cells)} |" for cells in (headings, rules, *rows)]


def markdown_report(snapshot: Snapshot) -> str:
    """A sentence to forward, processes and users, predicted and observed memory, GPUs; every byte folded at the end."""
    sample, host = snapshot.sample, snapshot.sample.host
    known = [
        f"Driver {prose(host.driver_version)}" if host.driver_version else "",
        f"CUDA {prose(host.cuda_version)}" if host.cuda_version else "",
        f"CPU {host.cpu_percent:.0f} %" if host.cpu_percent is not None else "",
        f"host memory {format_bytes(host.memory_available)} available of {format_bytes(host.memory_total)}"
        if host.memory_total is not None
        else "",
    ]
    facts = ", ".join(filter(None, known)) + ("." if any(known) else "")
    lines = [*(f"{prose(sentence)}  " for sentence in snapshot.sentences or ("No process on these GPUs.",))]
    lines += ["", f"# GPU memory on {code(host.name)}", ""]
    lines += [f"Taken {iso_time(sample.taken_at)} from {code(sample.source)}. {facts}", ""]
    folded: list[str] = []
    if snapshot.holdings:
        titles = ("GPU", "PID", "Type", "User", "Now (GiB)", "Peak (GiB)", "Predicted (GiB)", "Δ", "Preset", "Command")
        rows = [
            (
                str(one.gpu_index),
                str(one.process.pid),
                one.process.type,
                code(one.process.user),
                "N/A" if one.process.used_memory is None else format_gib(one.process.used_memory, 2),
                format_gib(one.peak.bytes if one.peak else None, 2),
                format_gib(one.comparison.predicted if one.comparison else None, 2),
                format_percent(one.comparison.fraction if one.comparison else None),
                code(one.preset),
                code(one.process.command_or_name),
            )
            for one in snapshot.holdings
        ]
        lines += ["## Processes", "", *table(titles, rows, numbers=(1, 4, 5, 6, 7)), ""]
        users = ((code(user), str(count), format_gib(size, 2)) for user, count, size in snapshot.users)
        lines += [*table(("User", "Processes", "Now (GiB)"), users, numbers=(1, 2)), ""]
    for holding in snapshot.holdings:
        comparison, estimate = holding.comparison, holding.estimate
        if comparison and estimate:
            title = f"Pid {holding.process.pid} on GPU {holding.gpu_index} against {code(holding.preset)}"
            lines += [f"## {title}", ""]
            if holding.settings:
                lines += [f"Settings: {code(holding.settings)}", ""]
            lines += [*(f"- {prose(sentence)}" for sentence in holding.outlook), *([""] if holding.outlook else [])]
            lines += [*ledger_table(comparison.rows, snapshot.vendor_of(holding)), ""]
            lines += [f"By {code(comparison.method)}, peak in {PHASE_TITLES[estimate.peak_phase]}.", ""]
            if estimate.assumptions:
                lines += ["Assumed:", "", *(f"- {prose(sentence)}" for sentence in estimate.assumptions), ""]
            folded += [title, "", *ledger_table(comparison.rows, snapshot.vendor_of(holding), to_the_byte=True), ""]
    cards, totals, notes = list[Sequence[str]](), list[Sequence[str]](), list[str]()
    for gpu in sample.gpus:
        memory = gpu.memory
        figures = ((gpu.utilization, "%"), (gpu.power_watts, "W"), (gpu.temperature_celsius, "°C"))
        cards.append(
            (
                str(gpu.index),
                code(gpu.name),
                format_gib(memory.used),
                format_gib(memory.total),
                *(UNKNOWN if value is None else f"{value:.0f} {unit}" for value, unit in figures),
                gpu.state if gpu.state == "ok" else f"{gpu.state}: {prose(gpu.reason)}",
            )
        )
        in_processes = None if memory.used is None else gpu.attributed - (gpu.mig_used or 0)
        sizes = (in_processes, gpu.mig_used, gpu.unattributed, memory.reserved, memory.free, memory.total)
        totals.append((str(gpu.index), *map(count, sizes)))
        if memory.total is not None and memory.used is not None and memory.free is not None:
            left_over = memory.total - memory.used - memory.free - (memory.reserved or 0)
            if left_over:
                figure = f"the driver's own figures differ by {count(left_over)} bytes from its total."
                notes += ["", f"GPU {gpu.index}: {figure}"]
    headings = ("GPU", "Name", "Used (GiB)", "Total (GiB)", "Utilization", "Power", "Temperature", "State")
    shown = table(headings, cards, numbers=(2, 3, 4, 5, 6)) if cards else ("None seen.",)
    lines += ["## GPUs", "", *shown]
    if sample.problems:
        lines += ["", "## Problems", ""]
        for problem in sample.problems:
            hint = f" {prose(problem.hint)}" if problem.hint else ""
            lines.append(f"- {code(problem.where)}: {prose(problem.message)}{hint}")
    if snapshot.versions:
        versions = (f"- {prose(name)} {prose(version)}" for name, version in snapshot.versions.items())
        lines += ["", "## Versions", "", *versions]
    if sample.gpus:
        summands = ("GPU", "Processes", "+ MIG instances", "+ unattributed", "+ driver reserved", "+ free", "= total")
        every_byte = (*table(summands, totals, numbers=range(1, 7)), *notes)
        lines += ["", "<details><summary>Every byte</summary>", "", *folded, *every_byte, "", "</details>"]
    return "\n".join(lines) + "\n"


def ledger_table(rows: Iterable[ComparisonRow], vendor: str = CUDA, *, to_the_byte: bool = False) -> list[str]:
    """The lines of a table with both sides of a comparison, in the words of the GPU's vendor."""
    shown = shown_rows(rows, vendor)
    unit, name = (
        (1, "bytes") if to_the_byte else unit_of(max((row.predicted or row.observed or 0 for row in shown), default=0))
    )

    def figure(size: int | None) -> str:
        if to_the_byte or size is None:
            return count(size)
        return f"{'−' if size < 0 else ''}{format_column(abs(size), unit)}".replace("<", "&lt;")

    cells = []
    for row in shown:
        title = f"**{row.title}**" if row.line in TOTALS else f"= {row.title}" if row.is_subtotal else row.title
        seen = (figure(row.observed), figure(row.difference), format_percent(row.fraction))
        cells.append((title, figure(row.predicted), *(("", "", "") if row.is_part else seen)))
    return table(("Part", *(f"{title} ({name})" for title in ("Predicted", "Observed", "Δ")), "Δ"), cells, range(1, 5))
