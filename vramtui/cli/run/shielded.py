"""Becomes a job whose files are thrown away: `SCRATCH KEPT:KEPT COMMAND…`, a process of its own of `run --on`.

It runs with nothing but this package in its path, so that no file of the job's folder stands in for one of Python's.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from vramtui.estimators.traced.process.shield import protect

CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from vramtui.cli.run.shielded import main; main()"
PR_SET_PDEATHSIG = 1  # linux/prctl.h
REFUSED = "shield"  # a file in the first folder that is kept: why nothing is thrown away


def shielded(command: Sequence[str], scratch: str, writable: Sequence[str]) -> list[str]:
    """The command that runs `command` so.

    Args:
        command: the job's.
        scratch: an empty folder; what the job writes lies there, in memory, until it ends.
        writable: folders in which what it writes stays.
    """
    package = str(Path(__file__).resolve().parents[3])
    return [sys.executable, "-I", "-c", CODE, package, scratch, os.pathsep.join(writable), *command]


def gpu_devices() -> tuple[str, ...]:
    """The files by which a driver reaches this machine's GPUs: NVIDIA's own, and that of Windows below Linux."""
    paths = (path for name in ("nvidia*", "dxg") for path in Path("/dev").glob(name) if not path.is_dir())
    return tuple(sorted(map(str, paths)))


def main() -> None:
    """Shield this process, and become the job."""
    scratch, writable, *command = sys.argv[1:]
    folders = tuple(writable.split(os.pathsep))
    missing = protect(scratch, folders, gpu_devices())
    if missing:
        Path(folders[0], REFUSED).write_text("\n".join(missing), encoding="utf-8")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # nobody waits for its answer then
    os.execvp(command[0], command)  # noqa: S606 - the person's own command
