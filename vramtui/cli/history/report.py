"""`vramtui report`: a past run as files."""

from pathlib import Path
from typing import Annotated

import typer

from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.common.settings import folder_of, snapshot_settings


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
        from vramtui.cli.history.run_estimates import report_of
        from vramtui.records.export.run_report import FORMATS, save_report

        settings = snapshot_settings()
        usual = [kind for kind in settings.formats if kind in FORMATS] or FORMATS
        chosen = [kind.strip() for entry in formats or usual for kind in entry.split(",")]
        for path in save_report(report_of(run_history().run(run)), folder or folder_of(settings), chosen):
            typer.echo(path)
