"""`vramtui report`: a past run as files."""

from pathlib import Path
from typing import Annotated

import typer

from vramtui.cli.exits import spoken_errors


def report(
    run: Annotated[int, typer.Argument(metavar="RUN", help="Its number: `vramtui history` lists them.")],
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", "-f", help="json, csv, md, html; several with commas. All of them by default."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where to write them.")] = Path(),
) -> None:
    """Write a past run as JSON, CSV, Markdown and HTML: comparison, timeline, memory over time; never overwrites.

    Of a snapshot's formats it lacks SVG, which is a picture of the screen.
    """
    with spoken_errors():
        from vramtui.cli.folders import run_history  # noqa: PLC0415 - only here
        from vramtui.cli.reporting import report_of  # noqa: PLC0415 - only here
        from vramtui.records.run_report import FORMATS, save_report  # noqa: PLC0415 - only here

        chosen = [kind.strip() for entry in formats or FORMATS for kind in entry.split(",")]
        for path in save_report(report_of(run_history().run(run)), folder, chosen):
            typer.echo(path)
