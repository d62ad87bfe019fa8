"""A past run as files: JSON, CSV, Markdown, and one web page that needs nothing else."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError, nearest, os_reason
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_duration, format_percent
from vramtui.core.estimate.estimate import PHASE_TITLES
from vramtui.core.observation.readings import SCHEMA
from vramtui.core.runs.run import Run, RunReport
from vramtui.core.runs.run_list import ending_words, lasted_words, preset_values
from vramtui.presets.whole_files import write_new
from vramtui.records.export.drawings import over_time
from vramtui.records.export.files import file_stem, write_files
from vramtui.records.export.html import (
    bullet_list,
    categories,
    document,
    legend,
    phase_title,
    sides,
    timeline,
    two_sides,
)
from vramtui.records.export.markdown import code, ledger_table, prose
from vramtui.records.export.markdown import table as markdown_table
from vramtui.records.export.sanitize import clean, iso_time, json_text, table, tag, text
from vramtui.records.export.tables import Cells, csv_text, ledger_cells

FORMATS = ("json", "csv", "md", "html")


def save_report(report: RunReport, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write `report` into `folder` and say which files it became, in `formats`' order; never overwrites.

    Raises:
        UserError: a format is not known, or the folder cannot be written.
    """
    texts = {kind: _render(kind, report) for kind in dict.fromkeys(formats)}
    run = report.stored.run
    return write_files(folder, file_stem(run.host, run.started_at, f"run-{report.stored.id}"), texts, "report")


def write_report(report: RunReport, path: Path) -> None:
    """Write `report` to a new file; its suffix says in which format.

    Raises:
        UserError: the format is unknown, or the file exists or cannot be written.
    """
    try:
        write_new(path, _render(path.suffix[1:], report).encode())
    except OSError as error:
        raise UserError(f"{printable(str(path))} cannot be written: {os_reason(error)}") from None


def _render(kind: str, report: RunReport) -> str:
    makers: dict[str, Callable[[RunReport], str]] = {
        "json": lambda report: json_text(report_document(report)),
        "csv": _csv,
        "md": _markdown,
        "html": _html,
    }
    if kind not in makers:
        raise UserError(f"{kind!r} is not a format{nearest(kind, FORMATS)}; there are: {', '.join(FORMATS)}")
    return makers[kind](report)


def report_document(report: RunReport) -> dict[str, Any]:
    """The report for JSON: bytes are integers, times seconds since the epoch, unknown is None."""
    run = report.stored.run
    built: dict[str, Any] = clean(
        {
            "schema": SCHEMA,
            "id": report.stored.id,
            **msgspec.to_builtins(run),
            "error": run.error,
            "comparison": msgspec.to_builtins(report.rows),
            "timeline": msgspec.to_builtins(report.estimate.timeline) if report.estimate else [],
            "assumptions": list(report.estimate.assumptions) if report.estimate else [],
            "notes": list(report.notes),
        }
    )
    return built


def _csv(report: RunReport) -> str:
    run = report.stored.run
    common: Cells = {
        "taken_at": iso_time(run.last_known),
        "host": run.host,
        "gpu_uuid": run.gpu_uuid,
        "gpu_name": run.gpu_name,
        "pid": run.pid,
        "command": run.command,
        "state": run.ending,
        "preset": run.preset or None,
        "method": run.method or None,
    }
    return csv_text({**common, **ledger_cells(row)} for row in report.rows)


def _facts(report: RunReport) -> Iterator[tuple[str, str, bool]]:
    """What is known of a run, in words: a name, a text, and whether somebody else wrote that text."""
    run = report.stored.run
    ended = ending_words(run, run.last_known)
    lasted = f", after {lasted_words(run)}" if run.ended_at is not None else ""
    yield "Started", iso_time(run.started_at), False
    yield "Ended", f"{ended}{lasted}" if run.ending != "running" else "nobody saw its end", False
    yield "Host", run.host, True
    yield "GPU", f"{run.gpu_name} ({run.gpu_uuid})", True
    yield "Pid", str(run.pid), False
    yield "Command", run.command, True
    yield "Preset", run.preset, True
    yield "Method", run.method, True
    yield "Predicted peak", f"{format_bytes(run.predicted.process, 2)}{_phase(run)}", False
    yield "Observed peak", f"{format_bytes(run.observed.process, 2)} ({run.peak_how})", False
    yield "Off by", format_percent(run.error), False


def _phase(run: Run) -> str:
    title = next((title for phase, title in PHASE_TITLES.items() if phase == run.peak_phase), "")
    return f" in {title}" if title else ""


def _markdown(report: RunReport) -> str:
    run = report.stored.run
    lines = [f"# Run {report.stored.id}: {code(run.preset or run.command)} on {code(run.host)}", ""]
    lines += [
        f"- {name}: {code(value) if theirs else prose(value or UNKNOWN)}" for name, value, theirs in _facts(report)
    ]
    lines += ["", "## Predicted and observed", "", *ledger_table(report.rows)]
    if report.estimate is not None and report.estimate.timeline:
        rows = (
            (
                phase_title(moment),
                format_bytes(moment.allocated, 2),
                format_bytes(moment.peak_allocated, 2),
            )
            for moment in report.estimate.timeline
        )
        headings = ("At the end of", "Allocated", "Peak within it")
        lines += ["", "## Phase by phase, as predicted", "", *markdown_table(headings, rows, numbers=(1, 2))]
    if run.times:
        lines += ["", "## Memory over time", "", *_series_table(run)]
    lines += [
        "",
        "## Preset values",
        "",
        *(f"- {code(f'[{name}]')}: {code(value)}" for name, value in preset_values(run)),
    ]
    lines += _section("Versions", [f"{prose(name)} {prose(known)}" for name, known in run.versions.items()])
    lines += _section("Notes", [prose(note) for note in report.notes])
    return "\n".join(lines) + "\n"


def _section(title: str, entries: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *(f"- {entry}" for entry in entries)] if entries else []


def _series_table(run: Run, most: int = 12) -> list[str]:
    """The graph in a few lines: the most that was held in each of at most `most` stretches."""
    span = max(run.last_known - run.started_at - run.times[0], 1.0)
    stretches: dict[int, int] = {}
    for at, value in zip(run.times, run.values, strict=True):
        part = min(most - 1, int((at - run.times[0]) / span * most))
        stretches[part] = max(value, stretches.get(part, 0))
    rows = (
        (format_duration(run.times[0] + part * span / most), format_bytes(value, 2))
        for part, value in sorted(stretches.items())
    )
    return markdown_table(("From", "Most held"), rows, numbers=(0, 1))


def _html(report: RunReport) -> str:
    run = report.stored.run
    title = f"Run {report.stored.id}: {text(run.preset or run.command)} on {text(run.host)}"
    return document(title, [tag("h1", title), *_body(report)])


def _body(report: RunReport) -> Iterator[str]:
    run, estimate = report.stored.run, report.estimate
    yield table(
        ("This run", ""),
        ((text(name), tag("code", text(value)) if theirs else text(value)) for name, value, theirs in _facts(report)),
    )
    yield tag("h2", "Predicted and observed")
    yield sides(run.predicted, report.rows, run.observed.process)
    yield legend([*categories(run.predicted), ("observed", "used")])
    yield two_sides(report.rows)
    if run.times:
        yield tag("h2", "Memory over time")
        times, values = (*run.times, run.last_known - run.started_at), (*run.values, run.values[-1])
        ends = (format_duration(times[0]), f"{format_duration(times[-1])} after its start")
        yield over_time(times, values, run.predicted.process, ends)
    if estimate is not None and estimate.timeline:
        yield tag("h2", "Phase by phase, as predicted")
        yield timeline(estimate)
    yield from bullet_list("Preset values", (f"[{name}] {value}" for name, value in preset_values(run)))
    if estimate is not None:
        counted = (f"{part.name}: {part.formula} ({part.source})" for part in estimate.parts)
        yield from bullet_list("How it is counted", counted)
        yield from bullet_list("Assumed", estimate.assumptions)
    yield from bullet_list("Versions", (f"{name} {known}" for name, known in run.versions.items()))
    yield from bullet_list("Notes", report.notes)
