"""`vramtui history`: past runs, predicted and observed, and how far the predictions were off."""

import re
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, get_args

import msgspec
import typer

from vramtui.cli.common.console import print_json
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.options import beginning, command_of
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable
from vramtui.core.runs.run import StoredRun, spreads
from vramtui.core.runs.run_list import RUN_COLUMNS, RunColumn, RunFilter, filtered, in_order, why_not_deleted
from vramtui.records.run_history import RunHistory

Sort = Annotated[str, typer.Option(help=f"By {', '.join(RUN_COLUMNS)}.", autocompletion=beginning(RUN_COLUMNS))]
ALL = 1 << 30
_AGO = re.compile(r"(\d+) *(m|h|d|w)")
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True, kw_only=True)
class HistoryOptions:
    """What `vramtui history` takes."""

    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="One run by its number.")] = None
    preset: Annotated[str, typer.Option(help="Only runs of presets whose name contains this.")] = ""
    gpu: Annotated[str, typer.Option(metavar="NAME", help="Only runs on GPUs whose name or uuid holds this.")] = ""
    host: Annotated[str, typer.Option(help="Only runs on hosts whose name contains this.")] = ""
    since: Annotated[str, typer.Option(metavar="WHEN", help="Only runs since then: 7d, 12h, 2026-11-20.")] = ""
    failed: Annotated[bool, typer.Option("--failed", help="Only failed runs.")] = False
    sort: Sort = "when"
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse order.")] = False
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 50
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one run to a new .html, .md, .csv or .json file."),
    ] = None
    forget: Annotated[int | None, typer.Option(metavar="RUN", help="Delete one run for good.")] = None
    plot: Annotated[bool, typer.Option("--plot", help="Also draw the errors: over time, and how often.")] = False
    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False


@command_of(HistoryOptions)
def history(options: HistoryOptions) -> None:
    """Past runs: what was predicted, what was observed, and how far they were apart."""
    with exit_on_user_error():
        from vramtui.cli.common.paths import run_history
        from vramtui.cli.history import text as history_text

        database = run_history()
        if options.forget is not None:
            _forget(database, options.forget)
            return
        if options.export is not None:
            if options.run is None:
                raise UserError("--export takes one run: vramtui history 12 --export run.html")
            from vramtui.records.export.run_export import export_run

            export_run(database.run(_number(options.run)), options.export)
            return
        if options.run is not None:
            runs = _as_they_stand([database.run(_number(options.run))])
        else:
            wanted = RunFilter(
                preset=options.preset,
                gpu=options.gpu,
                host=options.host,
                since=_moment(options.since),
                failed=options.failed,
            )
            every = filtered(_as_they_stand(database.runs(limit=ALL)), wanted)
            runs = in_order(every, _column(options.sort), reverse=options.reverse)[: options.limit]
        _tell_damaged(database)
        if options.json:
            print_json(document(runs))
        elif options.run is not None:
            history_text.print_run(runs[0])
        else:
            history_text.print_list(runs, some_kept=bool(runs) or bool(database.runs(limit=1)))
            if options.plot and runs:
                _print_plots(runs)


def _as_they_stand(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """The runs; one whose process is gone is not running, whoever did not see it end."""
    from vramtui.cli.dashboard.past_runs import still_running

    return list(still_running(runs))


def document(runs: list[StoredRun]) -> dict[str, object]:
    """What `--json` prints."""
    rows = [{"id": entry.id, **msgspec.to_builtins(entry.run), "error": entry.run.error} for entry in runs]
    return {"schema": 1, "runs": rows, "errors": spreads(tuple(entry.run for entry in runs))}


def _print_plots(entries: list[StoredRun]) -> None:
    from vramtui.cli.common.plot import Bars
    from vramtui.cli.history.text import plotted

    runs = [entry.run for entry in entries]
    sys.stdout.write(f"\n{plotted(runs, time.time(), shutil.get_terminal_size().columns, colour=Bars().colour)}")


def _number(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise UserError(f"{printable(text)} is not the number of a run; `vramtui history` lists them")


def _column(text: str) -> RunColumn:
    for column in get_args(RunColumn):
        if text == column:
            return column  # type: ignore[no-any-return]  # get_args does not know that these are the Literal's own
    raise UserError(f"--sort {text} is not a column{nearest(text, RUN_COLUMNS)}; there are: {', '.join(RUN_COLUMNS)}")


def _moment(text: str) -> float | None:
    """Seconds since the epoch of `7d`, `12h` ago or of a local date and time.

    Raises:
        UserError: it is neither.
    """
    if not text:
        return None
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UserError(f"--since {printable(text)} is not a time; write it like 7d, 12h, 30m or 2026-11-20") from None


def _forget(history: RunHistory, number: int) -> None:
    """Remove a run and say which; one that is damaged cannot be shown, but it can be removed."""
    from vramtui.cli.history.text import in_a_line

    try:
        run = history.run(number)
        what = in_a_line(run.run)
    except UserError:
        if not history.forget(number):
            raise
        what = "it was damaged"
    else:
        refused = why_not_deleted(_as_they_stand([run])[0], time.time())
        if refused:
            raise UserError(refused)
    history.forget(number)
    sys.stdout.write(f"Run {number} deleted: {what}\n")


def _tell_damaged(history: RunHistory) -> None:
    for sentence in history.damaged:
        sys.stderr.write(f"vramtui: {sentence}\n")
