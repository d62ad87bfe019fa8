"""The person's own editor: which one it is, and a file opened in it."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable

EDITORS = ("nano", "vi")


def editor_command() -> list[str]:
    """The words that start `$VISUAL`, `$EDITOR`, or the first of the usual ones that is installed."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if chosen:
        try:
            words = shlex.split(chosen)
        except ValueError:
            words = [chosen]
        if words:
            return words
    return [next((name for name in EDITORS if shutil.which(name)), EDITORS[-1])]


def run_editor(path: Path) -> None:
    """Open `path` in the person's editor and wait for its end.

    Raises:
        UserError: it cannot be started, or did not end well.
    """
    command = editor_command()
    name = printable(command[0])
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode  # noqa: S603 - the person's own editor
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{name} cannot be started: {reason.lower()}") from None
    if code:
        raise UserError(f"{name} ended with {code}")
