"""Scripts that run as root in a namespace of their own: with another /proc, pids of their own, or as another user."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

NOBODY = 65534
PATIENCE = 120.0  # seconds; only a script that hangs takes so long
AS_NOBODY = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"


@cache
def _works(flags: tuple[str, ...], mount: str) -> bool:
    try:
        command = ["unshare", *flags, "sh", "-c", mount]
        return not subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def run_in_namespace(
    script: str, *arguments: object, mount: str = "true", flags: Sequence[str] = ("--mount",)
) -> dict[str, Any]:
    """What a script prints, as JSON. The test is skipped where this user or machine may not make the namespace.

    Args:
        script: Python, whose `sys.argv[1:]` are the arguments.
        arguments: for it.
        mount: a command of the shell that is run there before.
        flags: those of unshare(1).
    """
    if not _works((*flags,), mount):
        pytest.skip(f"unshare {' '.join(flags)} with `{mount}` is for root on a Linux that lets it")
    program = shlex.join([sys.executable, "-c", script, *map(str, arguments)])
    ended = subprocess.run(
        ["unshare", *flags, "sh", "-c", f"{mount} && exec {program}"],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert not ended.returncode, ended.stderr.decode(errors="replace")
    return dict(json.loads(ended.stdout))
