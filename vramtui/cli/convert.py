"""`vramtui convert`: a recording as a table for other programs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vramtui.cli.common.console import print_json
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.options.shared_options import Json


def convert(
    recording: Annotated[Path, typer.Argument(metavar="RECORDING", help="What `vramtui record` wrote.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A new file: table.csv or table.parquet.")],
    json: Json = False,
) -> None:
    """Write a recording as CSV or Parquet: a row for each process on each GPU at each moment."""
    with exit_on_user_error():
        from vramtui.cli.common.open_source import open_source
        from vramtui.records.export.tables import RECORDING_COLUMNS, write_table

        opened = open_source(demo=False, replay=recording)
        assert opened.recording is not None
        rows = write_table(opened.recording.samples, table)
        if json:
            written = {
                "table": str(table),
                "format": table.suffix[1:],
                "rows": rows,
                "columns": list(RECORDING_COLUMNS),
            }
            print_json({"schema": 1, **written})
        else:
            sys.stdout.write(f"{rows:,} rows written to {table}.\n")
