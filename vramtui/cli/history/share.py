"""`vramtui history --share` and `--import`: runs for others, and theirs for this history."""

import sys
from pathlib import Path

import typer

from vramtui.cli.common.exit_codes import NO
from vramtui.core.base.errors import UserError
from vramtui.core.runs.run import Run
from vramtui.presets import bundled_folder
from vramtui.presets.library import preset_files
from vramtui.presets.toml.whole_files import write_new
from vramtui.records.run_history import RunHistory
from vramtui.records.shared_runs import encoded, read_shared, shareable


def share(runs: list[Run], path: Path, *, yes: bool) -> None:
    """Show all that would be written, ask, and write it; nothing is sent anywhere.

    Raises:
        UserError: there is nothing to share, or the file is there already or cannot be written.
    """
    shared = shareable(runs, (file.stem for file in preset_files(bundled_folder())))
    if not shared:
        raise UserError("no finished run has both a prediction and an observation, so there is nothing to share")
    text = encoded(shared)
    if not yes:
        sys.stdout.write(text)
        if not typer.confirm(f"Write these {len(shared)} runs to {path}?", err=True):
            raise typer.Exit(NO)
    try:
        write_new(path, text.encode())
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    sys.stdout.write(f"{len(shared)} runs written to {path}.\n")


def import_runs(history: RunHistory, path: Path) -> None:
    """Take the runs of a file that somebody shared; importing it again changes nothing.

    Raises:
        UserError: it is no such file.
    """
    runs = read_shared(path)
    for run in runs:
        history.keep(run)
    sys.stdout.write(f"{len(runs)} runs imported; they are of the host {runs[0].host if runs else '-'!r}.\n")
