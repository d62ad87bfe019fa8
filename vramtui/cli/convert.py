"""`vramtui convert`: a recording as a table for other programs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vramtui.cli.common.exit_codes import exit_on_user_error


def convert(
    recording: Annotated[Path, typer.Argument(metavar="RECORDING", help="What `vramtui record` wrote.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A new file: table.csv or table.parquet.")],
) -> None:
    """Write a recording as CSV or Parquet: a row for each process on each GPU at each moment."""
    with exit_on_user_error():
        from vramtui.cli.common.open_source import open_source  # noqa: PLC0415 - recordings take time to load
        from vramtui.records.export.recording_table import write_table  # noqa: PLC0415 - as above

        opened = open_source(demo=False, replay=recording)
        assert opened.recording is not None
        rows = write_table(opened.recording.samples, table)
        sys.stdout.write(f"{rows:,} rows written to {table}.\n")
