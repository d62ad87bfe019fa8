"""Open a file in the user's own editor."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable

EDITORS = ("nano", "vi")


def run_editor(path: Path) -> None:
    """Open `path` in `$VISUAL`, `$EDITOR` or the first usual editor that is installed, and wait for its end.

    Raises:
        UserError: it cannot be started, or it failed.
    """
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        command = shlex.split(chosen)
    except ValueError:
        command = [chosen]
    command = command or [next((name for name in EDITORS if shutil.which(name)), EDITORS[-1])]
    name = printable(command[0])
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode  # noqa: S603 - the user's own editor
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{name} cannot be started: {reason.lower()}") from None
    if code:
        raise UserError(f"{name} ended with {code}")
