"""Opening what `--feed` names."""

import os
import sys
from pathlib import Path

from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.text import printable

STANDARD_INPUT = "-"


def open_descriptor(feed: str) -> int:
    """A file descriptor to read `feed` from; of standard input a copy, as its own may then be the terminal's.

    Raises:
        UserError: it cannot be opened, or is a terminal.
    """
    if feed != STANDARD_INPUT:
        try:
            return os.open(Path(feed), os.O_RDONLY)
        except OSError as error:
            why = os_reason(error)
            raise UserError(f"--feed: {printable(feed)} cannot be read: {why}") from None
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("--feed - reads standard input, which is the terminal; try `ssh HOST vramtui stream | …`")
    return os.dup(0)


def give_keys(feed: str | None) -> None:
    """Where the samples come through standard input, let the keys come from the terminal itself.

    Raises:
        UserError: there is none.
    """
    if feed != STANDARD_INPUT:
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        raise UserError("the dashboard needs a terminal; for a script there is `vramtui ps --feed - --json`") from None
    os.dup2(terminal, 0)
    os.close(terminal)
