"""`vramtui history`: past runs, predicted and observed, and how far the predictions were off."""

import re
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import get_args

import msgspec

from vramtui.cli.common.console import print_json, print_table, print_wrapped, text_width
from vramtui.cli.common.exit_codes import say
from vramtui.cli.options import command_of
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import brief_command, printable
from vramtui.core.base.units import UNKNOWN, format_column, format_gib, format_percent, unit_of
from vramtui.core.estimate.fits import compare_ledgers, shown_rows
from vramtui.core.runs import run as past

ALL = 1 << 30
MOST_DAMAGED = 3  # runs that are named
AGO = re.compile(r"(\d+) *(m|h|d|w)")
SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
HEADINGS = ("RUN", "WHEN", "HOST", "GPU", "PRESET", "METHOD", "PREDICTED", "OBSERVED", "Δ", "ENDED", "COMMAND")
NUMBERS = (0, 6, 7, 8)
SPARE = (5, 2, 3, 10, 8)  # columns that a narrow terminal leaves out, the first of them first
NARROW, MOST_NAME = 100, 22
LONGEST_BAR = 40
HEIGHT = 16  # rows of the drawing over time: a tenth of a percent is seen if errors stay within one percent
DAY = 86400.0
EMPTY = (
    "No runs recorded yet: `vramtui run --preset NAME -- COMMAND` records one, and so does the dashboard for every job"
    " matched to a preset."
)
NOTHING = "No finished run has both a prediction and an observation yet; there is nothing to draw.\n"


@command_of
def history(
    *,
    run: str | None = None,
    preset: str = "",
    gpu: str = "",
    host: str = "",
    since: str = "",
    failed: bool = False,
    sort: str = "when",
    reverse: bool = False,
    limit: int = 50,
    export: Path | None = None,
    forget: int | None = None,
    plot: bool = False,
    json: bool = False,
) -> None:
    """Past runs: what was predicted, what was observed, and how far they were apart."""
    from vramtui.cli.common.settings import run_history, still_running

    database, asked = run_history(), run or ""
    number = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 19 else None
    if forget is not None:
        try:
            deleted = database.run(forget)
        except UserError:  # a damaged run cannot be shown, but it can be removed
            if not database.forget(forget):
                raise
            sys.stdout.write(f"Run {forget} deleted: it was damaged\n")
            return
        if refused := past.why_not_deleted(still_running([deleted])[0], time.time()):
            raise UserError(refused)
        database.forget(forget)
        one = deleted.run
        name = f"{printable(one.host)}, {printable(one.preset) or 'no preset'}, pid {one.pid}"
        sys.stdout.write(f"Run {forget} deleted: {when(one.started_at)}, {name}\n")
        return
    if export is not None:
        if number is None:
            raise UserError("--export takes one run: vramtui history 12 --export run.html")
        from vramtui.records.export.files import export_run

        export_run(database.run(number), export)
        return
    if number is not None:
        runs = list(still_running([database.run(number)]))
    else:
        if sort not in get_args(past.RunColumn):
            hint = f"{nearest(sort, past.RUN_COLUMNS)}; there are: {', '.join(past.RUN_COLUMNS)}"
            raise UserError(f"--sort {sort} is not a column{hint}")
        moment = None
        if since:
            ago = AGO.fullmatch(since.strip())
            try:  # so long ago, or a local date and time
                moment = (
                    time.time() - int(ago[1]) * SECONDS[ago[2]]
                    if ago
                    else datetime.fromisoformat(since.strip()).timestamp()
                )
            except (ValueError, OverflowError, OSError):
                what = "is not a time; write it like 7d, 12h, 30m or 2026-11-20"
                raise UserError(f"--since {printable(since)} {what}") from None
        wanted = past.RunFilter(words=asked, preset=preset, gpu=gpu, host=host, since=moment, failed=failed)
        every = past.filtered(still_running(database.runs(limit=ALL)), wanted)
        runs = past.in_order(every, sort, reverse=reverse)[:limit]  # type: ignore[arg-type]  # checked above
    damaged = database.damaged
    more = f"and {len(damaged) - MOST_DAMAGED} more damaged runs" if len(damaged) > MOST_DAMAGED else ""
    for sentence in filter(None, (*damaged[:MOST_DAMAGED], more)):
        say(sentence)
    if json:
        rows = [{"id": entry.id, **msgspec.to_builtins(entry.run), "error": entry.run.error} for entry in runs]
        print_json({"schema": 1, "runs": rows, "errors": past.spreads(tuple(entry.run for entry in runs))})
    elif number is not None:
        print_run(runs[0])
    else:
        print_list(runs, some_kept=bool(runs) or bool(database.runs(limit=1)))
        if plot and runs:
            from vramtui.cli.common.plot import colour_wanted

            width = shutil.get_terminal_size().columns
            drawn = plotted([entry.run for entry in runs], time.time(), width, colour=colour_wanted())
            sys.stdout.write(f"\n{drawn}")


def print_list(entries: Sequence[past.StoredRun], *, some_kept: bool) -> None:
    """Print a line for each run, and the spread of their errors; `some_kept` if the history holds other runs."""
    if not entries:
        print_wrapped("No recorded run matches." if some_kept else EMPTY, text_width())
        return
    short, now, rows = text_width() < NARROW, time.time(), []
    for entry in entries:
        run = entry.run
        day = when(run.started_at)
        # A short row may have no column for the command, which then replaces a missing preset.
        brief = brief_command(run.command) if short else ""
        brief = brief if len(brief) <= MOST_NAME else f"{brief[: MOST_NAME - 1]}…"
        rows.append(
            (
                str(entry.id),
                day[len("2026-") :] if short and day != UNKNOWN else day,
                printable(run.host),
                printable(run.gpu_name),
                printable(run.preset or brief) or UNKNOWN,
                run.method or UNKNOWN,
                format_gib(run.predicted.process),
                format_gib(run.observed.process),
                UNKNOWN if run.error is None else format_percent(run.error),
                past.ending_words(run, now),
                printable(run.command),
            )
        )
    print_table(HEADINGS, rows, right=NUMBERS, spare=SPARE)
    sys.stdout.write("PREDICTED and OBSERVED are peaks of the process in GiB.\n")
    runs = tuple(entry.run for entry in entries)
    for spread in past.spreads(runs):
        kind = f" on {spread.model_kind} models" if spread.model_kind else ""
        widest = f"{format_percent(spread.lowest)} to {format_percent(spread.highest)}"
        count = f"{spread.runs} finished run{'s' if spread.runs > 1 else ''}"
        sys.stdout.write(f"\n{spread.method}{kind}: median {format_percent(spread.median)}, {widest} ({count})\n")
        bars = _bars(past.errors_of(runs, spread.method, spread.model_kind))
        most = max(number for _, number in bars)
        for title, number in bars:
            bar = "█" * (round(LONGEST_BAR * number / most) if most > LONGEST_BAR else number)
            sys.stdout.write(f"  {title:>13}  {bar}{f' {number}' if number else ''}\n")


def _bars(errors: Sequence[float]) -> list[tuple[str, int]]:
    """Each range of errors that holds a run, and those between, with the number of runs."""
    counts = past.histogram(errors)
    shown = [at for at, number in enumerate(counts) if number]
    return list(zip(past.BARS, counts, strict=True))[shown[0] : shown[-1] + 1]


def print_run(entry: past.StoredRun) -> None:
    run = entry.run
    for name, words in past.facts_of(run, time.time(), when(run.started_at)).items():
        print_wrapped(f"{name:<8} {printable(words)}", text_width())
    shown = shown_rows(compare_ledgers(run.predicted, run.observed))
    unit, name = unit_of(max((row.predicted or row.observed or 0 for row in shown), default=0))
    rows = []
    for row in shown:
        observed = ("", "") if row.is_part else (format_column(row.observed, unit), format_percent(row.fraction))
        title = f"= {row.title}" if row.is_subtotal else row.title
        rows.append((title, format_column(row.predicted, unit), *observed))
    print_table((f"PART IN {name}", "PREDICTED", "OBSERVED", "Δ"), rows, right=(1, 2, 3))
    for table, values in past.preset_values(run):
        print_wrapped(f"{table}: {printable(values)}", text_width())
    sys.stdout.write(f"`vramtui history {entry.id} --export run.html` writes it to a file, with a graph.\n")


def when(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def plotted(runs: Sequence[past.Run], now: float, width: int, *, colour: bool) -> str:
    """Draw each finished run's error over the days before `now`, then how many runs are in each range of errors."""
    from vramtui.cli.common.plot import drawing, finished  # loads plotext, 0.4 s

    known = [(run.started_at, run.error) for run in runs if run.finished and run.error is not None]
    if not known:
        return NOTHING
    days, errors = [(at - now) / DAY for at, _ in known], [error for _, error in known]
    figure = drawing("observed over predicted, % (over the last days)", width, HEIGHT, colour=colour)
    figure.draw(figure.signal([min(days), 0.0], [0.0, 0.0], marker="·").lines())  # a prediction without error
    figure.draw(figure.signal(days, [error * 100 for error in errors], marker="o"))
    over_time = finished(figure, colour=colour)
    labels, numbers = map(list, zip(*reversed(_bars(errors)), strict=True))
    figure = drawing("runs in each range of errors", width, len(labels) + 4, colour=colour)
    figure.draw(figure.bar(labels, numbers, orientation="horizontal", marker="#", width=0.5))
    return f"{over_time}\n\n{finished(figure, colour=colour)}\n"
