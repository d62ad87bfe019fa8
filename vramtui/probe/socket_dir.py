"""The listeners of probes: sockets in a folder that only this user can enter."""

import os
import stat
import struct

SOCKET = "VRAMTUI_PROBE"  # the environment's name for the socket of the `vramtui run` that started this job
RUN = "VRAMTUI_RUN"  # and for what tells that run's processes from any other's
PRESET = "VRAMTUI_PRESET"  # and for the preset that it was given
STEPS = "VRAMTUI_STEPS"  # and for the optimizer steps after which the job is to end
REST = "VRAMTUI_REST"  # and for whether it goes on to the end of its epoch, made short
UNTIL = "VRAMTUI_UNTIL"  # and for the second of the machine's monotonic clock at which it is to end
OTHER_WAY = "VRAMTUI_OTHER_WAY"  # and for `EVERY:FILE:LINE`, whose guessed condition goes the other way
OTHER_NUMBERS = "VRAMTUI_OTHER_NUMBERS"  # and for how a run reads unknown numbers, but in such files of torch
CARD = "VRAMTUI_CARD"  # and for the card that it runs on where there is none
REPORTS = "VRAMTUI_DRIVER_REPORT"  # and for the folder of what the simulated GPU's driver reports
SUFFIX = ".sock"
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of who is at the other end
SERVED = "served"  # a file in the folder of reports, there once the job waits for requests
ASKED = "{}.asked-{}"  # and one by which a process is asked to tell its end, which that signal is to bring

LONGEST = 60  # characters of a folder: of 107 that a socket's path may have, its name takes up to 47


def own_uid() -> int:
    return os.getuid()


def listeners_folder() -> str:
    """`$XDG_RUNTIME_DIR/vramtui`; else a folder of this user's own in /tmp, or in the home folder where another user
    made that one first. Jobs and listeners ask the same questions, so both arrive at the same folder.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and len(runtime) <= LONGEST and os.path.isdir(runtime):
        return runtime + "/vramtui"
    shared = shared_folder()
    if private(shared) or not os.path.lexists(shared):
        return shared
    home = os.path.expanduser("~/.vramtui-probes")
    return home if os.path.isabs(home) and len(home) <= LONGEST else shared


def shared_folder() -> str:
    """The listeners' folder if this user has no runtime folder."""
    return f"/tmp/vramtui-{os.getuid()}"  # noqa: S108 - who else could have made it is looked at in `private`


def private(folder: str) -> bool:
    """Return whether `folder` is a real one, this user's, and closed to everyone else."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
