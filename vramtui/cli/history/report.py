"""`vramtui report`: a past run as files, with its own method asked again for what the history does not keep."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vramtui import __version__
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.common.settings import folder_of, snapshot_settings
from vramtui.core.base.compatibility import with_known_fields
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device, card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.runs.run import Run, RunReport, StoredRun, run_report
from vramtui.core.schema.workload import Workload


def report(
    run: Annotated[int, typer.Argument(metavar="RUN", help="Its number: `vramtui history` lists them.")],
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            "-f",
            help="json, csv, md, html; several with commas. By default as the settings say for snapshots.",
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to write them; by default as the settings say, or else here.")
    ] = None,
) -> None:
    """Write a past run as JSON, CSV, Markdown and HTML: comparison, timeline, memory over time; never overwrites.

    Of a snapshot's formats it lacks SVG, which is a picture of the screen.
    """
    with exit_on_user_error():
        from vramtui.cli.common.paths import run_history
        from vramtui.records.export.run_report import FORMATS, save_report

        settings = snapshot_settings()
        usual = [kind for kind in settings.formats if kind in FORMATS] or FORMATS
        chosen = [kind.strip() for entry in formats or usual for kind in entry.split(",")]
        for path in save_report(report_of(run_history().run(run)), folder or folder_of(settings), chosen):
            typer.echo(path)


def report_of(stored: StoredRun) -> RunReport:
    """Everything about `stored`. A trace is not run again: it takes seconds, and code of somebody's."""
    again, problem = _again(stored.run)
    return run_report(stored, again, problem, __version__)


def _again(run: Run) -> tuple[Estimate | None, str]:
    """The estimate of the kept workload by the run's own method, or why there is none."""
    if not run.method or not run.workload:
        return None, "it ran without a preset"
    if run.method == "traced":
        return None, "traces are not repeated here; use vramtui trace"
    from vramtui.estimators.methods import estimates_by

    try:
        workload = with_known_fields(msgspec.json.encode(run.workload), Workload)
        return estimates_by(run.method, workload, _device(run))[0], ""
    except (msgspec.ValidationError, UserError) as error:
        return None, f"this version cannot read the stored workload ({error})"


def _device(run: Run) -> Device:
    try:
        return card(run.gpu_name)
    except UserError:
        return msgspec.structs.replace(CARDS[DEFAULT_CARD], name=run.gpu_name)
