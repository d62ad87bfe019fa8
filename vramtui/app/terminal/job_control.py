"""Ctrl+Z: the shell has the terminal until `fg`.

In raw mode the terminal makes no signal of the key, so the whole job is sent one here, as the terminal would: a program
that started this one waits for it otherwise, and the shell never hears that the job has stopped.
"""

import os

import psutil
from textual.app import App

from vramtui.app.terminal.terminal_driver import TerminalDriver

NO_SHELL = "No shell started this dashboard, so none could continue it: Ctrl+Z does nothing here."


def suspend_job(app: App[None]) -> None:
    """Stop, with all that the shell started as one job, where there is a terminal and a shell to come back from."""
    driver = app._driver  # noqa: SLF001 - there is no public way to it
    if not isinstance(driver, TerminalDriver):
        return
    if shell_waits():
        driver.stop_job()
    else:
        app.notify(NO_SHELL, markup=False)


def shell_waits() -> bool:
    """Whether somebody is there to continue this job: a process of this terminal's session outside the job, which
    started it. Where there is none (`ssh -t host vramtui`, a container's first process, `xterm -e`) the kernel lets a
    key stop no program either (POSIX: an orphaned process group).
    """
    group, session = os.getpgrp(), os.getsid(0)
    try:
        for parent in psutil.Process().parents():
            if os.getpgid(parent.pid) != group:
                return os.getsid(parent.pid) == session
    except (psutil.Error, OSError):
        return False
    return False
