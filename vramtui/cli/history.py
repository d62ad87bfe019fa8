"""`vramtui history`: past runs, predicted against observed, and how far the predictions were off."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.console import print_json, print_table
from vramtui.cli.exits import spoken_errors
from vramtui.core.ledger import LINES, TITLES
from vramtui.core.runs import Run, Spread, spreads
from vramtui.core.text import printable
from vramtui.core.units import UNKNOWN, format_bytes, format_duration, format_gib, format_percent

if TYPE_CHECKING:
    from vramtui.records.run_history import Kept

HEADINGS = ("RUN", "WHEN", "HOST", "GPU", "PRESET", "METHOD", "PREDICTED", "OBSERVED", "Δ", "ENDED", "COMMAND")
NUMBERS = (0, 6, 7, 8)


def history(
    run: Annotated[int | None, typer.Argument(metavar="[RUN]", help="One run by its number.")] = None,
    preset: Annotated[str | None, typer.Option(help="Only runs of this preset.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The latest so many.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False,
) -> None:
    """Past runs: what was predicted, what was observed, and how far they were apart."""
    with spoken_errors():
        from vramtui.cli.folders import run_history  # noqa: PLC0415 - only here

        kept = (run_history().run(run),) if run is not None else run_history().runs(preset, limit)
        found = spreads(tuple(entry.run for entry in kept))
        if json:
            print_json(document(kept, found))
        elif run is not None:
            _print_run(kept[0])
        else:
            _print_list(kept, found)


def document(kept: "tuple[Kept, ...]", found: tuple[Spread, ...]) -> dict[str, object]:
    """What `--json` prints."""
    import msgspec  # noqa: PLC0415 - only here

    rows = [{"id": entry.id, **msgspec.to_builtins(entry.run), "error": entry.run.error} for entry in kept]
    return {"schema": 1, "runs": rows, "errors": found}


def _print_list(kept: "tuple[Kept, ...]", found: tuple[Spread, ...]) -> None:
    if not kept:
        sys.stdout.write("No run is kept yet: `vramtui run --preset NAME -- COMMAND` keeps one.\n")
        return
    print_table(HEADINGS, [_row(entry) for entry in kept], right=NUMBERS)
    sys.stdout.write("PREDICTED and OBSERVED are peaks of the process in GiB.\n")
    for spread in found:
        widest = f"{format_percent(spread.lowest)} to {format_percent(spread.highest)}"
        kind = f" on {spread.model_kind} models" if spread.model_kind else ""
        count = f"{spread.runs} run{'s' if spread.runs > 1 else ''}"
        sys.stdout.write(f"{spread.method}{kind}: median {format_percent(spread.median)}, {widest} ({count})\n")


def _row(entry: "Kept") -> tuple[str, ...]:
    run = entry.run
    return (
        str(entry.id),
        _when(run.started_at),
        printable(run.host),
        printable(run.gpu_name),
        printable(run.preset),
        run.method,
        format_gib(run.predicted.process),
        format_gib(run.observed.process),
        UNKNOWN if run.error is None else format_percent(run.error),
        _ending(run),
        printable(run.command),
    )


def _print_run(entry: "Kept") -> None:
    run = entry.run
    lasted = None if run.ended_at is None else run.ended_at - run.started_at
    facts = {
        "command": printable(run.command) or UNKNOWN,
        "when": f"{_when(run.started_at)}{f', for {format_duration(lasted)}' if lasted is not None else ''}",
        "where": f"{printable(run.host)}, {printable(run.gpu_name)} ({printable(run.gpu_uuid)}), pid {run.pid}",
        "ended": _ending(run),
        "preset": f"{printable(run.preset)}, method {run.method}, peak expected in {run.peak_phase or UNKNOWN}",
        "peak": f"learnt from: {run.peak_how}",
    }
    for name, text in facts.items():
        sys.stdout.write(f"{name:<8} {text}\n")
    rows = [
        (TITLES[line], *_sides(run.predicted.bytes_of(line), run.observed.bytes_of(line)))
        for line in LINES
        if run.predicted.bytes_of(line) or run.observed.bytes_of(line) is not None
    ]
    print_table(("PART", "PREDICTED", "OBSERVED", "Δ"), rows, right=(1, 2, 3))
    for table in ("model", "run", "parallel"):
        values = run.workload.get(table) or {}
        told = ", ".join(f"{key} = {value}" for key, value in values.items() if value not in (None, False))
        if told:
            sys.stdout.write(f"{table}: {printable(told)}\n")


def _sides(predicted: int | None, observed: int | None) -> tuple[str, str, str]:
    known = predicted and observed is not None
    apart = format_percent((observed or 0) / predicted - 1) if predicted and known else UNKNOWN
    return format_bytes(predicted, 2), format_bytes(observed, 2), apart


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _ending(run: Run) -> str:
    word = run.ending.replace("_", " ")
    return f"{word} ({run.exit_code})" if run.exit_code else word
