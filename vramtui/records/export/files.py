"""Snapshots and past runs as files: one for each format, under one name; existing files are never replaced."""

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError, nearest, os_reason
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes, format_duration, format_gib, format_percent
from vramtui.core.estimate.fits import compare_ledgers
from vramtui.core.observation.readings import SCHEMA
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.runs.run import StoredRun, ending_words, facts_of, preset_values
from vramtui.core.schema.settings import FORMATS
from vramtui.presets.whole_files import fill_beside, give_name, write_new
from vramtui.records.export import html, plain
from vramtui.records.export.html import text
from vramtui.records.export.markdown import code, ledger_table, markdown_report, prose
from vramtui.records.export.markdown import table as markdown_table

_FULL = (errno.ENOSPC, errno.EDQUOT)


def save_snapshot(snapshot: Snapshot, folder: Path, formats: Sequence[str] = FORMATS, picture: str = "") -> list[Path]:
    """Write `snapshot` to new files in `folder`, which is made if needed. Return the files in `formats`' order.

    The files are called `vramtui-HOST-YYYYmmdd-HHMMSS.json` and so on, after the sample's own time; where a file of any
    format has that name already, all of them get `-2`, then `-3`. `picture` is the screen as SVG, for the page. Raises
    UserError if a format is not known, or the folder cannot be written.
    """
    texts = {kind: file_text(kind, snapshot, picture) for kind in dict.fromkeys(formats)}
    return write_files(folder, file_stem(snapshot.sample.host.name, snapshot.sample.taken_at), texts, "snapshot")


def write_files(folder: Path, stem: str, texts: Mapping[str, str], what: str) -> list[Path]:
    """Write `texts`, by format, under one name that is free in every format; whole and all of them, or none. `what` is
    their name in an error. Raises UserError if the folder cannot be written.
    """
    unfinished = {kind: folder / f".{stem[:100]}.{os.urandom(4).hex()}.{kind}" for kind in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, text in texts.items():
            fill_beside(unfinished[kind], text.encode())
        for number in count(1):
            name = stem if number == 1 else f"{stem}-{number}"
            if any(os.path.lexists(folder / f"{name}.{kind}") for kind in FORMATS):
                continue
            paths, given = [folder / f"{name}.{kind}" for kind in texts], list[Path]()
            try:
                for scratch, path in zip(unfinished.values(), paths, strict=True):
                    give_name(scratch, path)
                    given.append(path)
            except BaseException as error:
                for path in given:
                    path.unlink(missing_ok=True)
                if not isinstance(error, FileExistsError):  # another program took the name meanwhile
                    raise
            else:
                return given
    except OSError as error:
        where = printable(str(folder))
        if error.errno in _FULL:
            raise UserError(f"the {what} was not written: the disk that holds {where} is full") from None
        reason = printable(error.strerror or str(error))
        reason = f"{reason[:1].lower()}{reason[1:]}"
        raise UserError(f"the {what} was not written to {where}: {reason}; choose another folder") from None
    finally:
        for scratch in unfinished.values():
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
    raise AssertionError("the names never end")


def write_file(path: Path, text: str) -> None:
    """Write a new file; raises UserError if it exists, or cannot be written."""
    try:
        write_new(path, text.encode())
    except OSError as error:
        raise UserError(f"{printable(str(path))} cannot be written: {os_reason(error)}") from None


def file_text(kind: str, snapshot: Snapshot, picture: str = "") -> str:
    """Return the snapshot in one of FORMATS; UserError if it is none of them."""
    return text_in(
        kind,
        {
            "json": lambda: plain.json_text(plain.ps_document(snapshot, detailed=True)),
            "csv": lambda: plain.csv_table(snapshot),
            "md": lambda: markdown_report(snapshot),
            "html": lambda: html.html_page(snapshot, picture),
        },
    )


def text_in(kind: str, makers: Mapping[str, Callable[[], str]]) -> str:
    """Return what the maker of a format gives; raises UserError if the format is none of them."""
    if kind not in makers:
        raise UserError(f"{kind!r} is not a format{nearest(kind, FORMATS)}; there are: {', '.join(FORMATS)}")
    return makers[kind]()


def file_stem(host: str, at: float, kind: str = "") -> str:
    """A file's name before its ending: the host, what kind of file it is, and a moment (seconds since the epoch)."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", host).strip(".-")[:64]
    when = plain.moment(at)
    named = f"vramtui-{safe or 'host'}{f'-{kind}' if kind else ''}"
    return f"{named}-{f'{when:%Y%m%d-%H%M%S}' if when else 'undated'}"


def save_run(stored: StoredRun, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a run to new files in `folder`. Return the files in `formats`' order. Raises UserError if a format is not
    known, or the folder cannot be written.
    """
    texts = {kind: _text(kind, stored) for kind in dict.fromkeys(formats)}
    stem = file_stem(stored.run.host, stored.run.started_at, f"run-{stored.id}")
    return write_files(folder, stem, texts, "run")


def export_run(stored: StoredRun, path: Path) -> None:
    """Write a run to a new file in the format of the file's suffix. Raises UserError if the format is unknown, or the
    file exists or cannot be written.
    """
    write_file(path, _text(path.suffix[1:], stored))


def _text(kind: str, stored: StoredRun) -> str:
    run = stored.run
    rows = compare_ledgers(run.predicted, run.observed)
    common: plain.Cells = {
        "taken_at": plain.iso_time(run.last_known),
        "host": run.host,
        "gpu_uuid": run.gpu_uuid,
        "gpu_name": run.gpu_name,
        "pid": run.pid,
        "command": run.command,
        "state": run.ending,
        "preset": run.preset or None,
        "method": run.method or None,
    }
    values = {"schema": SCHEMA, "id": stored.id, **msgspec.to_builtins(run), "error": run.error}
    return text_in(
        kind,
        {
            "json": lambda: plain.json_text(plain.clean({**values, "comparison": msgspec.to_builtins(rows)})),
            "csv": lambda: plain.csv_text({**common, **plain.ledger_cells(row)} for row in rows),
            "md": lambda: _markdown(stored),
            "html": lambda: _html(stored),
        },
    )


def _sentence(stored: StoredRun) -> str:
    """The run in a sentence to forward."""
    run = stored.run
    sizes = f"{format_gib(run.observed.process)} of {format_gib(run.predicted.process)} GiB predicted"
    off = "" if run.error is None else f" ({format_percent(run.error)})"
    return f"run {stored.id}, pid {run.pid} on {run.host}: {sizes}{off}, {ending_words(run, run.last_known)}"


def _markdown(stored: StoredRun) -> str:
    run = stored.run
    lines = [
        prose(_sentence(stored)),
        "",
        f"# Run {stored.id}: {code(run.preset or run.command)} on {code(run.host)}",
        "",
    ]
    facts = facts_of(run, run.last_known, plain.iso_time(run.started_at))
    lines += [f"- {name}: {code(words) if name == 'command' else prose(words)}" for name, words in facts.items()]
    rows = compare_ledgers(run.predicted, run.observed)
    lines += ["", "## Predicted and observed", "", *ledger_table(rows)]
    if run.times:
        # The graph as a table: the most in each of twelve stretches of time.
        most, span = 12, max(run.last_known - run.started_at - run.times[0], 1.0)
        stretches: dict[int, int] = {}
        for at, value in zip(run.times, run.values, strict=True):
            part = min(most - 1, int((at - run.times[0]) / span * most))
            stretches[part] = max(value, stretches.get(part, 0))
        times = (
            (format_duration(run.times[0] + part * span / most), format_bytes(value, 2))
            for part, value in sorted(stretches.items())
        )
        lines += ["", "## Memory over time", "", *markdown_table(("From", "Peak"), times, numbers=(0, 1))]
    lines += ["", "## Preset values", ""]
    lines += [f"- {code(f'[{name}]')}: {code(value)}" for name, value in preset_values(run)]
    if run.versions:
        lines += ["", "## Versions", "", *(f"- {prose(name)} {prose(known)}" for name, known in run.versions.items())]
    return "\n".join(lines) + "\n"


def _html(stored: StoredRun) -> str:
    run = stored.run
    title = f"Run {stored.id}: {text(run.preset or run.command)} on {text(run.host)}"
    rows = compare_ledgers(run.predicted, run.observed)
    facts = (
        (name, html.tag("code", text(words)))
        for name, words in facts_of(run, run.last_known, plain.iso_time(run.started_at)).items()
    )
    body = [
        html.tag("p", html.tag("strong", text(_sentence(stored)))),
        html.tag("h1", title),
        html.table(("This run", ""), facts),
        html.tag("h2", "Predicted and observed"),
        html.sides(run.predicted, rows, run.observed.process),
        html.legend([*html.categories(run.predicted), ("observed", "used")]),
        html.two_sides(rows),
    ]
    if run.times:
        times, values = (*run.times, run.last_known - run.started_at), (*run.values, run.values[-1])
        ends = (format_duration(times[0]), f"{format_duration(times[-1])} after its start")
        body += [html.tag("h2", "Memory over time"), html.over_time(times, values, run.predicted.process, ends)]
    body += html.bullet_list("Preset values", (f"[{name}] {value}" for name, value in preset_values(run)))
    body += html.bullet_list("Versions", (f"{name} {known}" for name, known in run.versions.items()))
    return html.document(title, body)
