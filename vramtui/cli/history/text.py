"""`vramtui history` for people: the table of runs, and with `--plot` how far predictions were off, drawn by plotext."""

import sys
import time
from collections.abc import Sequence

from vramtui.cli.common.console import print_table, print_wrapped, text_width
from vramtui.core.base.text import brief_command, printable
from vramtui.core.base.units import (
    UNKNOWN,
    format_column,
    format_duration,
    format_gib,
    format_percent,
    unit_of,
)
from vramtui.core.estimate.comparison import ShownRow, compare_ledgers, shown_rows
from vramtui.core.runs.run import Run, Spread, StoredRun, spreads
from vramtui.core.runs.run_list import BARS, ending_words, errors_of, histogram, preset_values

HEADINGS = ("RUN", "WHEN", "HOST", "GPU", "PRESET", "METHOD", "PREDICTED", "OBSERVED", "Δ", "ENDED", "COMMAND")
NUMBERS = (0, 6, 7, 8)
SPARE = (5, 2, 3, 10, 8)  # columns that a narrow terminal does not have, the first of them first
NARROW, MOST_NAME = 100, 22
LONGEST_BAR = 40
EMPTY = (
    "No runs recorded yet: `vramtui run --preset NAME -- COMMAND` records one, and so does the dashboard for every job"
    " matched to a preset.\n"
)


def print_list(entries: Sequence[StoredRun], *, some_kept: bool) -> None:
    """A line for each run, and how far off they were; `some_kept` when the history holds others that are not asked
    for.
    """
    if not entries:
        sys.stdout.write("No recorded run matches.\n" if some_kept else EMPTY)
        return
    print_table(HEADINGS, [_row(entry, short=text_width() < NARROW) for entry in entries], right=NUMBERS, spare=SPARE)
    sys.stdout.write("PREDICTED and OBSERVED are peaks of the process in GiB.\n")
    runs = tuple(entry.run for entry in entries)
    for spread in spreads(runs):
        _print_spread(spread, runs)


def print_run(entry: StoredRun) -> None:
    """Everything that is kept of one."""
    run = entry.run
    lasted = None if run.ended_at is None else run.ended_at - run.started_at
    facts = {
        "command": printable(run.command) or UNKNOWN,
        "when": f"{when(run.started_at)}{f', for {format_duration(lasted)}' if lasted is not None else ''}",
        "where": f"{printable(run.host)}, {printable(run.gpu_name)} ({printable(run.gpu_uuid)}), pid {run.pid}",
        "ended": ending_words(run, time.time()),
        "preset": f"{printable(run.preset)}, method {run.method}, peak expected in {run.peak_phase or UNKNOWN}"
        if run.preset
        else "none, so nothing was predicted",
        "peak": f"based on: {run.peak_how}",
        "versions": ", ".join(f"{printable(name)} {printable(known)}" for name, known in run.versions.items())
        or UNKNOWN,
    }
    for name, text in facts.items():
        print_wrapped(f"{name:<8} {text}", text_width())
    shown = shown_rows(compare_ledgers(run.predicted, run.observed))
    unit, name = unit_of(max((row.predicted or row.observed or 0 for row in shown), default=0))
    rows = [_sides(row, unit) for row in shown]
    print_table((f"PART IN {name}", "PREDICTED", "OBSERVED", "Δ"), rows, right=(1, 2, 3))
    for table, values in preset_values(run):
        print_wrapped(f"{table}: {printable(values)}", text_width())
    sys.stdout.write(f"`vramtui history {entry.id} --export run.html` writes it to a file, with a graph.\n")


def in_a_line(run: Run) -> str:
    """When, where and what, for one sentence."""
    return f"{when(run.started_at)}, {printable(run.host)}, {printable(run.preset) or 'no preset'}, pid {run.pid}"


def when(at: float) -> str:
    """A moment in local time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def _print_spread(spread: Spread, runs: tuple[Run, ...]) -> None:
    """The median and the extremes, and a bar for each stretch of errors between them."""
    kind = f" on {spread.model_kind} models" if spread.model_kind else ""
    widest = f"{format_percent(spread.lowest)} to {format_percent(spread.highest)}"
    count = f"{spread.runs} finished run{'s' if spread.runs > 1 else ''}"
    sys.stdout.write(f"\n{spread.method}{kind}: median {format_percent(spread.median)}, {widest} ({count})\n")
    counts = histogram(errors_of(runs, spread.method, spread.model_kind))
    most = max(counts)
    shown = [at for at, number in enumerate(counts) if number]
    for title, number in list(zip(BARS, counts, strict=True))[shown[0] : shown[-1] + 1]:
        bar = "█" * (round(LONGEST_BAR * number / most) if most > LONGEST_BAR else number)
        sys.stdout.write(f"  {title:>13}  {bar}{f' {number}' if number else ''}\n")


def _row(entry: StoredRun, *, short: bool) -> tuple[str, ...]:
    """The cells of a run; in a `short` row, which may have no command column, it stands in for a missing preset."""
    run = entry.run
    day = when(run.started_at)
    return (
        str(entry.id),
        day[len("2026-") :] if short and day != UNKNOWN else day,
        printable(run.host),
        printable(run.gpu_name),
        printable(run.preset or (_brief(run.command) if short else "")) or UNKNOWN,
        run.method or UNKNOWN,
        format_gib(run.predicted.process),
        format_gib(run.observed.process),
        UNKNOWN if run.error is None else format_percent(run.error),
        ending_words(run, time.time()),
        printable(run.command),
    )


def _brief(command: str) -> str:
    """What tells a command from others, for a column of names."""
    brief = brief_command(command)
    return brief if len(brief) <= MOST_NAME else f"{brief[: MOST_NAME - 1]}…"


def _sides(row: ShownRow, unit: int) -> tuple[str, str, str, str]:
    title, predicted = f"= {row.title}" if row.is_subtotal else row.title, format_column(row.predicted, unit)
    if row.is_part:
        return title, predicted, "", ""
    return title, predicted, format_column(row.observed, unit), format_percent(row.fraction)


HEIGHT = 16  # rows of the drawing over time: a tenth of a percent is seen where errors stay within one percent
DAY = 86400.0
NOTHING = "No finished run has both a prediction and an observation yet; there is nothing to draw.\n"


def plotted(runs: Sequence[Run], now: float, width: int, *, colour: bool) -> str:
    """Each finished run's error over the days before `now`, then how many runs stand in each range of errors.

    Args:
        runs: in any order; those without an end or without an error are left out.
        now: seconds since the epoch, where the drawing ends.
        width: columns.
        colour: whether ANSI colours may be used.
    """
    known = [(run.started_at, run.error) for run in runs if run.finished and run.error is not None]
    if not known:
        return NOTHING
    days = [(at - now) / DAY for at, _ in known]
    errors = [error for _, error in known]
    drawings = (_over_time(days, errors, width, colour=colour), _distribution(errors, width, colour=colour))
    return "\n\n".join(drawings) + "\n"


def _over_time(days: Sequence[float], errors: Sequence[float], width: int, *, colour: bool) -> str:
    """A dot for each run; the line is a prediction without error."""
    from vramtui.cli.common.plot import drawing, finished  # loads plotext, 0.4 s

    figure = drawing("observed over predicted, % (over the last days)", width, HEIGHT, colour=colour)
    figure.draw(figure.signal([min(days), 0.0], [0.0, 0.0], marker="·").lines())
    figure.draw(figure.signal(list(days), [error * 100 for error in errors], marker="o"))
    return finished(figure, colour=colour)


def _distribution(errors: Sequence[float], width: int, *, colour: bool) -> str:
    """A bar for each range of errors that holds a run, and for those between."""
    from vramtui.cli.common.plot import drawing, finished

    counts = histogram(errors)
    shown = [at for at, number in enumerate(counts) if number]
    ranges = slice(shown[0], shown[-1] + 1)
    labels, numbers = list(BARS[ranges])[::-1], list(counts[ranges])[::-1]
    figure = drawing("runs in each range of errors", width, len(labels) + 4, colour=colour)
    figure.draw(figure.bar(labels, numbers, orientation="horizontal", marker="#", width=0.5))
    return finished(figure, colour=colour)
